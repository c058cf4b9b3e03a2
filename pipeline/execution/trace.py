"""Follow one document through reading and cleaning, for ``ingest --explain``.

`Counters` that have a `Trace` add every text that they count as left out, and readers that can tell
a document's id before they clean it skip all others.
"""

from dataclasses import dataclass, field


@dataclass(kw_only=True)
class LeftOut:
    """A text that is not in the document."""

    reason: str
    num_words: int
    text: str = ""
    """Empty for what is markup between the texts that are kept."""


@dataclass
class Trace:
    """The texts left out of the first document that has the id, or title, `document`."""

    document: str
    doc_id: str = ""
    """Empty until a reader has met the document."""
    title: str = ""
    left_out: list[LeftOut] = field(default_factory=list)
    """Also what was left out before the document since `restart`: it may belong to it, as the page
    in front of a book's first paragraph does."""

    def restart(self) -> None:
        """Forget the texts of the document, or file, that has just ended."""
        self.left_out = []

    def meet(self, doc_id: str, title: str) -> bool:
        """Return whether this is the document, which a reader is about to clean.

        What the reader leaves out is explained even if nothing of the document stays. A second
        document with the same title is another one.
        """
        if self.doc_id or self.document not in (doc_id, title):
            return False
        self.doc_id = doc_id
        self.title = title
        return True
