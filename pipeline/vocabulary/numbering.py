"""Number the strings that are seen, arrays of them at a time.

A dict of half a million strings costs several cache misses for each look-up. Here the numbers lie
in an array that is sorted by 64-bit fingerprints of the strings, and are found by binary search::

    strings         ""  the  cat  sat       numbers 0 to 3, in the order of their arrival
    fingerprints    0   1d…  52…  c7…       sorted
    numbers         0   3    1    2         of the string with each fingerprint

A fingerprint only proposes a number: the string of that number must be equal.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..ragged import flat_text, sums

# Knuth's for MMIX, and its inverse modulo 2 ** 64.
MULTIPLIER = np.int64(6364136223846793005)
INVERSE = np.uint64(pow(int(MULTIPLIER), -1, 1 << 64)).astype(np.int64)


class Numbering:
    """Numbers for all strings seen so far."""

    def __init__(self) -> None:
        # The empty string is always there, so that no array is empty.
        self.strings: pa.StringArray = pa.array([""])
        """In the order of their numbers."""
        self._fingerprints = np.zeros(1, np.int64)
        self._numbers = np.zeros(1, np.int32)

    @property
    def num_bytes(self) -> int:
        """The memory that this takes."""
        return self.strings.nbytes + self._fingerprints.nbytes + self._numbers.nbytes

    def number(self, strings: pa.StringArray) -> np.ndarray:
        """Return the number of each string, int32; append new ones, repeated if they are."""
        fingerprints = fingerprints_of(strings)
        # In ascending order, a search reads mostly what the one before it has read.
        order = np.argsort(fingerprints)
        fingerprints = fingerprints[order]
        strings = strings.take(pa.array(order))
        places = np.searchsorted(self._fingerprints, fingerprints)
        numbers = self._numbers.take(places, mode="clip")
        proposed = self.strings.take(pa.array(numbers))
        is_new = pc.call_function("not_equal", [strings, proposed])

        new = np.flatnonzero(is_new)
        num_before = len(self.strings)
        numbers[new] = np.arange(num_before, num_before + len(new))
        self.strings = pa.concat_arrays([self.strings, strings.take(pa.array(new))])
        self._fingerprints = np.insert(self._fingerprints, places[new], fingerprints[new])
        self._numbers = np.insert(self._numbers, places[new], numbers[new])

        in_order_of_strings = np.empty_like(numbers)
        in_order_of_strings[order] = numbers
        return in_order_of_strings


def fingerprints_of(strings: pa.StringArray) -> np.ndarray:
    """Return a hash of each string, int64: the polynomial of its bytes, modulo 2 ** 64."""
    text, offsets = flat_text(strings)
    # As if all text were one polynomial. Dividing by the power at a string's start moves the string
    # to the beginning.
    powers = np.cumprod(np.full(len(text), MULTIPLIER))
    inverses = np.cumprod(np.full(len(text) + 1, INVERSE))
    # Plus one, so that "a" and "a\0" differ.
    coefficients = text + np.int64(1)
    at_their_places = sums(coefficients * powers, offsets)
    starts = offsets[:-1]
    return at_their_places * inverses[starts]
