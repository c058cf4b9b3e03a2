"""Show what `ingest` keeps and leaves out of one document, and why."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..config import IngestConfig
from ..counters import Counters, name_counts
from ..errors import UserError
from ..execution.trace import LeftOut, Trace
from ..sources.formats import find_inputs, plan_units, read_range
from ..text.wikitext.repair import MISSING, PRONUNCIATION, REMOVED
from .scatter import select_sentences

# Marks of removals in wikitext, which a text that is left out later may contain.
_MARKS = re.compile(f"[{REMOVED}{MISSING}{PRONUNCIATION}]")


@dataclass(kw_only=True)
class Explanation:
    """The kept and the left out text of one document."""

    doc_id: str
    title: str
    sentences: list[str] = field(default_factory=list)
    """The sentences that are kept; empty if the document is left out."""
    left_out: list[LeftOut] = field(default_factory=list)


def explain(sources: Sequence[str], document: str, config: IngestConfig) -> Explanation:
    """Return what `ingest` keeps and leaves out of the first document with this id, or title.

    Sources are read up to this document. Only a whole run can tell whether it repeats another one.
    Raises `UserError` if there is no such document.
    """
    trace = Trace(document)
    counters = Counters()
    counters.trace = trace
    first_id = ""
    inputs, _ = find_inputs(sources, None, config)
    ranges = [input_range for unit in plan_units(inputs, config) for input_range in unit.ranges]
    for input_range in ranges:
        trace.restart()
        for raw in read_range(input_range, config, counters):
            doc_id = f"{raw.source}:{raw.id}"
            first_id = first_id or doc_id
            if document not in (doc_id, raw.title):
                trace.restart()
                continue
            sentences = select_sentences(raw, config, counters)
            return Explanation(
                doc_id=doc_id,
                title=raw.title,
                sentences=sentences,
                left_out=_without_marks(trace.left_out),
            )
        # A reader may have met the document and left out all of it: it never came as `raw`.
        if trace.doc_id:
            return Explanation(
                doc_id=trace.doc_id, title=trace.title, left_out=_without_marks(trace.left_out)
            )
    example = f" An id is, for example, {first_id!r}." if first_id else ""
    bad = f" Bad input: {name_counts(counters.bad)}." if counters.bad else ""
    raise UserError(f"No document has the id or title {document!r}.{example}{bad}")


def _without_marks(texts: Sequence[LeftOut]) -> list[LeftOut]:
    """Return the texts without the marks that removals within them left."""
    without_marks: list[LeftOut] = []
    for left_out in texts:
        text = _MARKS.sub("", left_out.text).strip()
        without_marks.append(replace(left_out, text=text))
    return without_marks
