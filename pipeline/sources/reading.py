"""Read sources as documents without writing anything."""

from collections.abc import Iterator, Sequence

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

    Sources and formats are those of ``clozeworks ingest``; of `config`, only ``format``,
    ``documents`` and ``text_column`` matter. Bad input is counted by reason in `counters` and
    skipped. Raises `UserError` if a source does not exist or its format is unknown.
    """
    config, counters = config or IngestConfig(), counters or Counters()
    ranges = plan_reading(sources, config, counters)
    return (document for part in ranges for document in read_range(part, config, counters))


def plan_reading(
    sources: str | Sequence[str], config: IngestConfig, counters: Counters
) -> list[InputRange]:
    """Return the ranges to read; count files that are not read."""
    inputs, left_out = find_inputs([sources] if isinstance(sources, str) else sources, None, config)
    counters.add(left_out.to_record())
    return [part for unit in plan_units(inputs, config) for part in unit.ranges]
