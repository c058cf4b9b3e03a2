"""Read sources as documents without writing anything."""

from collections.abc import Iterator, Sequence
from itertools import chain

from ..config import IngestConfig
from ..execution.counters import Counters
from .formats import find_inputs, plan_units, read_range
from .records import InputRange, RawDocument


def read_documents(
    sources: str | Sequence[str],
    config: IngestConfig | None = None,
    counters: Counters | None = None,
) -> Iterator[RawDocument]:
    """Return an iterator over the documents in `sources`, as `ingest` reads them before it selects
    any.

    Sources and formats are as in ``clozeworks ingest``; of `config`, only ``format``,
    ``documents`` and ``text_column`` matter. Bad input is counted by reason in `counters` and
    skipped. Raises `UserError` if a source does not exist or its format is unknown.
    """
    config = config or IngestConfig()
    counters = counters or Counters()
    # Now, not with the first document: a source that does not exist is an error of this call.
    ranges = plan_reading(sources, config, counters)
    return chain.from_iterable(read_range(each, config, counters) for each in ranges)


def plan_reading(
    sources: str | Sequence[str], config: IngestConfig, counters: Counters
) -> list[InputRange]:
    """Return the ranges to read; count files that are not read."""
    if isinstance(sources, str):
        sources = [sources]
    inputs, left_out = find_inputs(sources, None, config)
    counters.add(left_out.to_record())
    ranges: list[InputRange] = []
    for unit in plan_units(inputs, config):
        ranges.extend(unit.ranges)
    return ranges
