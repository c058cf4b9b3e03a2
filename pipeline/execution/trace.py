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
    """Empty for markup between the texts that are kept."""


@dataclass
class Trace:
    """The texts left out of the first document that has the id, or title, `document`."""

    document: str
    doc_id: str = ""
    """Empty until a reader has met the document."""
    title: str = ""
    left_out: list[LeftOut] = field(default_factory=list)
    """Also the texts left out since `restart` before a document begins: a title page, for example,
    belongs to the book that follows.
    """

    def restart(self) -> None:
        """Forget the texts of the document, or file, that has just ended."""
        self.left_out = []

    def meet(self, doc_id: str, title: str) -> bool:
        """Return whether the document that a reader is about to clean is the one to follow.

        Its id is remembered, so that it can be explained even if nothing of it stays. A second
        document with the same title is not followed.
        """
        if self.doc_id or self.document not in (doc_id, title):
            return False
        self.doc_id = doc_id
        self.title = title
        return True
