"""What ingest keeps and leaves out of one document, and why."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..config import IngestConfig
from ..errors import UserError
from ..execution.counters import Counters, name_counts
from ..sources.formats import find_inputs, plan_units, read_range
from ..sources.wikitext.repair import MISSING, PRONUNCIATION, REMOVED
from .scatter import select_sentences

# Of what was removed before, in wikitext.
_MARKS = re.compile(f"[{REMOVED}{MISSING}{PRONUNCIATION}]")


@dataclass(kw_only=True)
class LeftOut:
    """A text that is not in the document."""

    reason: str
    num_words: int
    text: str = ""
    """Empty for what is markup between the texts that are kept."""


@dataclass(kw_only=True)
class Explanation:
    """What became of one document."""

    doc_id: str
    title: str
    sentences: list[str] = field(default_factory=list)
    """What is kept; empty if the document is left out."""
    left_out: list[LeftOut] = field(default_factory=list)


class _Collector(Counters):
    """Counters that also collect what is left out of the one document that is wanted."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.document = document
        self.left_out: list[LeftOut] = []
        self.found: Explanation | None = None

    def wants(self, doc_id: str, title: str) -> bool:
        if self.found or self.document not in (doc_id, title):
            return False
        self.left_out = []
        self.found = Explanation(doc_id=doc_id, title=title, left_out=self.left_out)
        return True

    def skip(self, reason: str, where: str) -> None:
        super().skip(reason, where)
        if (
            reason == "no_text"
        ):  # a file or archive member without a document, to which this could belong
            self.left_out = []

    def count_left_out(self, reason: str, num_words: int) -> None:
        super().count_left_out(reason, num_words)
        self.left_out.append(LeftOut(reason=reason, num_words=num_words))

    def leave_out(self, reason: str, texts: Sequence[str], kept: str = "") -> None:
        for text in texts:
            super().leave_out(reason, [text], kept)
            words = (
                (Counter(text.split()) - Counter(kept.split())).elements() if kept else text.split()
            )
            self.left_out[-1].text = _MARKS.sub("", " ".join(words)).strip()


def explain(sources: Sequence[str], document: str, config: IngestConfig) -> Explanation:
    """Return what `ingest` keeps and leaves out of the first document with this id, or title.

    Sources are read up to this document. Only a whole run can tell whether it repeats another one.
    Raises `UserError` if there is no such document.
    """
    collector = _Collector(document)
    inputs, _ = find_inputs(sources, None, config)
    ranges = [part for unit in plan_units(inputs, config) for part in unit.ranges]
    for part in ranges:
        collector.left_out = []
        for raw in read_range(part, config, collector):
            doc_id = f"{raw.source}:{raw.id}"
            if document in (doc_id, raw.title):
                left_out = collector.left_out  # before and within it
                sentences = select_sentences(raw, config, collector)
                return Explanation(
                    doc_id=doc_id, title=raw.title, sentences=sentences, left_out=left_out
                )
            collector.left_out = []
        if collector.found:
            return collector.found
    bad = f" Bad input: {name_counts(collector.bad)}." if collector.bad else ""
    raise UserError(f"No document has the id or title {document!r}.{bad}")
