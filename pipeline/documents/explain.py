"""Show what `ingest` keeps and leaves out of one document, and why."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..config import IngestConfig
from ..errors import UserError
from ..execution.counters import Counters, name_counts
from ..execution.trace import LeftOut, Trace
from ..sources.formats import find_inputs, plan_units, read_range
from ..sources.records import InputRange
from ..sources.wikitext.repair import MISSING, PRONUNCIATION, REMOVED
from .duplicates import hash_text
from .repeated_lines import REPEATED_LINES, hash_line
from .scatter import is_too_short, select_lines

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

    Sources are read up to this document; with `repeated_lines` as a whole, to count its lines.
    Only a whole run can find whether it repeats another document. Raises `UserError` if there is no
    such document.
    """
    trace = Trace(document)
    counters = Counters()
    counters.trace = trace
    inputs, _ = find_inputs(sources, None, config)
    ranges = [input_range for unit in plan_units(inputs, config) for input_range in unit.ranges]
    for input_range in ranges:
        trace.restart()
        for raw in read_range(input_range, config, counters):
            doc_id = f"{raw.source}:{raw.id}"
            if document not in (doc_id, raw.title):
                trace.restart()
                continue
            lines = select_lines(raw, config, counters)
            if config.repeated_lines is not None:
                lines = _without_repeated(lines, ranges, config, counters)
            return Explanation(
                doc_id=doc_id,
                title=raw.title,
                sentences=[sentence for line in lines for sentence in line],
                left_out=_without_marks(trace.left_out),
            )
        if trace.doc_id:
            # A reader met the document, and left out all of it.
            return Explanation(
                doc_id=trace.doc_id, title=trace.title, left_out=_without_marks(trace.left_out)
            )
    bad = f" Bad input: {name_counts(counters.bad)}." if counters.bad else ""
    raise UserError(f"No document has the id or title {document!r}.{bad}")


def _without_marks(texts: Sequence[LeftOut]) -> list[LeftOut]:
    """Return the texts without the marks that removals within them left."""
    return [replace(left_out, text=_MARKS.sub("", left_out.text).strip()) for left_out in texts]


def _without_repeated(
    lines: list[list[str]], ranges: Sequence[InputRange], config: IngestConfig, counters: Counters
) -> list[list[str]]:
    """Return the lines of a document that are not repeated; none if it is then too short."""
    texts_of: dict[int, set[tuple[int, ...]]] = {hash_line(line): set() for line in lines}
    for input_range in ranges:
        for raw in read_range(input_range, config, Counters()):
            lines_of_text = select_lines(raw, config, Counters())
            text = hash_text([sentence for line in lines_of_text for sentence in line])
            for line_hash in texts_of.keys() & map(hash_line, lines_of_text):
                texts_of[line_hash].add(text)
    unrepeated = []
    for line in lines:
        if len(texts_of[hash_line(line)]) < (config.repeated_lines or 0):
            unrepeated.append(line)
        else:
            counters.leave_out(REPEATED_LINES, [" ".join(line)])
    sentences = [sentence for line in unrepeated for sentence in line]
    if sentences and is_too_short(sentences, config):
        counters.leave_out("documents_too_short", sentences)
        return []
    return unrepeated
