"""Read sources as documents without writing anything: as an iterator, or in a Beam pipeline of
one's own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from ..config import IngestConfig
from ..execution.counters import Counters
from .formats import find_inputs, plan_units, read_range
from .records import InputRange, RawDocument

if TYPE_CHECKING:
    from ..execution.beam import ReadParts


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
    ranges = _plan(sources, config, counters)
    return (document for part in ranges for document in read_range(part, config, counters))


def read_documents_transform(
    sources: str | Sequence[str], config: IngestConfig | None = None
) -> "ReadParts":
    """Return a Beam transform from the pipeline to the documents in `sources`, a dictionary each.

    Their fields are those of `RawDocument`. The files are listed at once, and read in parallel by
    the workers, which must reach them. What `read_documents` counts in its ``Counters`` are Beam
    metrics in the namespace ``clozeworks``. Raises `UserError` as `read_documents` does.
    """
    from ..execution.beam import ReadParts

    config = config or IngestConfig()
    return ReadParts(_plan(sources, config, Counters()), partial(_read, config=config))


def _read(part: InputRange, counters: Counters, config: IngestConfig) -> Iterator[dict[str, Any]]:
    return map(asdict, read_range(part, config, counters))


def _plan(
    sources: str | Sequence[str], config: IngestConfig, counters: Counters
) -> list[InputRange]:
    inputs, left_out = find_inputs([sources] if isinstance(sources, str) else sources, None, config)
    counters.add(left_out.to_record())
    return [part for unit in plan_units(inputs, config) for part in unit.ranges]
