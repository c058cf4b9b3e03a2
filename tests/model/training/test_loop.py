"""Batches made ahead: their order, and errors."""

import pytest
from clozeworks.model.training.prefetch import prefetch


def test_prefetch_keeps_the_order_and_passes_errors_on():
    assert list(prefetch(lambda item: item * item, range(20))) == [
        item * item for item in range(20)
    ]
    stream = prefetch(lambda item: 1 // (3 - item), range(9))
    assert [next(stream) for _ in range(3)] == [0, 0, 1]
    with pytest.raises(ZeroDivisionError):
        next(stream)
