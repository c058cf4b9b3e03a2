"""Plan how often each source and language is read in a pass: by weights, or by an exponent.

The weight of a group of documents is the product of those of its source and its language; if these
share a name, its weight counts once. With an exponent below 1, small languages are read more often
and large ones less, in the same total: the share of a language becomes proportional to (share of
the text) ** exponent, as in multilingual BERT (0.7) and XLM-R (0.3; arXiv 1911.02116, section 3.1).
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import truediv

from .errors import UserError
from .manifests import DocumentsManifest, MixtureGroup

MAX_WEIGHT = 1000.0


def parse_weights(entries: Iterable[str]) -> dict[str, float]:
    """Return the weights of ``NAME=WEIGHT`` by name; raise `UserError` for anything else.

    >>> parse_weights(["enwiki=1,books=2.5", "ko=3"])
    {'enwiki': 1.0, 'books': 2.5, 'ko': 3.0}
    """
    weights = {}
    for entry in entries:
        for assignment in entry.split(","):
            # From the right: a name may contain "=".
            name, _, value = assignment.rpartition("=")
            try:
                weight = float(value)
            except ValueError:
                weight = math.nan
            # NaN compares false with everything, so it is refused here too.
            if not name or not 0 < weight <= MAX_WEIGHT:
                raise UserError(
                    f"`weight` {assignment}: give NAME=WEIGHT, the weight above 0 and at most "
                    f"{MAX_WEIGHT:g}."
                )
            if name in weights:
                raise UserError(
                    f"`weight` {assignment}: {name} has a weight already; give one for each name."
                )
            weights[name] = weight
    return weights


def plan_mixture(
    corpus: DocumentsManifest, weight: Sequence[str], language_exponent: float
) -> list[MixtureGroup]:
    """Return how often to read each source and language of the training text.

    Raises `UserError` if `weight` names a source or language that the corpus does not have.
    """
    characters_by_origin = Counter()
    characters_by_language = Counter()
    for group in corpus.training_groups():  # validation is read once, whatever the weights
        characters_by_origin[group.source, group.language] += group.characters
        characters_by_language[group.language] += group.characters

    weights = parse_weights(weight)
    names = set(chain.from_iterable(characters_by_origin))
    for name in weights:
        if name not in names:
            choices = ", ".join(sorted(names))
            raise UserError(
                f"`weight` {name}: no source or language has this name; choose from {choices}."
            )

    scales = _language_scales(characters_by_language, language_exponent)
    mixture = []
    for source, language in sorted(characters_by_origin):
        # A set, so that a name that is both source and language counts once.
        asked = math.prod(weights.get(name, 1.0) for name in {source, language})
        # Rounded, so that the manifest has 1.0 where a machine's arithmetic gives 0.9999999999.
        group_weight = round(scales.get(language, 1.0) * asked, 6)
        mixture.append(MixtureGroup(source=source, language=language, weight=group_weight))
    return mixture


def _language_scales(characters: Mapping[str, int], exponent: float) -> dict[str, float]:
    """Return how often to read each language so that shares become powers of themselves."""
    # Exponent 0.5:     en     ko
    #   characters      90     10
    #   share          0.9    0.1
    #   power         0.95   0.32       the sum is 1.26
    #   to read         75     25       powers in proportion, the same total
    #   scale         0.83    2.5       times
    languages = [language for language, count in characters.items() if count]
    total = sum(characters.values())
    shares = [characters[language] / total for language in languages]
    powers = [share**exponent for share in shares]
    scale = sum(powers)
    to_read = [power / scale for power in powers]
    return dict(zip(languages, map(truediv, to_read, shares), strict=True))


def weights_of(mixture: Iterable[MixtureGroup]) -> dict[tuple[str, str], float]:
    """Return the weights by source and language, none if all are 1."""
    weights = {(group.source, group.language): group.weight for group in mixture}
    if all(weight == 1 for weight in weights.values()):
        return {}
    return weights
