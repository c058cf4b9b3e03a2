"""Sums of counters over units, and how much bad input is too much."""

import pytest
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.execution.counters import CounterRecord, sum_counters


def test_too_much_bad_input_fails_the_stage():
    record: CounterRecord = {"counts": {"read": 8}, "bad": {"torn": 2}, "examples": {"torn": ["dump: page 3"]}}
    assert sum_counters([record], 0.2, "read").bad["torn"] == 2
    with pytest.raises(UserError, match=r"2 x torn.*torn at dump: page 3.*raise --max-bad"):
        sum_counters([record], 0.1, "read")
