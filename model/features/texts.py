"""The texts whose features are extracted: lines, rows of a table, or sentences of CoNLL columns."""

from collections.abc import Iterator
from pathlib import Path

from ...pipeline.errors import UserError
from ..checkpoint import files_digest
from ..tasks.conll import read_conll
from ..tasks.sentence_rows import SentenceExample
from ..tasks.tables import SUFFIXES, TableRow, check_file, is_hub, open_text, read_rows, text_lines
from ..tasks.tagged import Sentence, split_words
from ..tasks.text_table import TEXT_COLUMNS
from .config import FeaturesConfig


def data_and_digest(data: Path) -> tuple[Path, str]:
    """Return what to read and a digest of it.

    For a data set of the Hub these are its present revision and split: later ones are other data.
    """
    if is_hub(data):
        # Imported late: it needs the `datasets` library.
        from ...pipeline.storage.hub import open_set

        data_set = open_set(str(data))
        return Path(data_set.address), data_set.digest
    check_file(data)
    return data, files_digest([data])


def read_texts(data: Path, config: FeaturesConfig) -> Iterator[SentenceExample]:
    """Yield the texts in a file, in order; a sentence of CoNLL columns keeps its document."""
    kind = _format(data, config)
    match kind:
        case "text":
            with open_text(data) as file:
                for _, line in text_lines(file, str(data)):
                    yield SentenceExample([_sentence(line, config)], 0)
        case "table":
            for row in read_rows(data):
                text = row.text(config.text or _text_column(row))
                yield SentenceExample([_sentence(text, config)], 0)
        case _:
            for document in read_conll(data, labelled=False):
                for number in range(len(document)):
                    yield SentenceExample(document, number)


def _sentence(text: str, config: FeaturesConfig) -> Sentence:
    if config.per == "text":
        # As `transformers` tokenises it: byte-level BPE may begin a text without a space.
        return Sentence((text,), None, is_text=True)
    return split_words(text)


def _text_column(row: TableRow) -> str:
    for name in TEXT_COLUMNS:
        if name in row.values:
            return name
    return TEXT_COLUMNS[0]  # the row's error says which columns there are


def _format(data: Path, config: FeaturesConfig) -> str:
    """Return how `data` is read: as text, a table or columns."""
    kind = config.format
    if kind == "auto":
        if is_hub(data) or data.suffix in SUFFIXES:
            kind = "table"
        elif data.suffix == ".txt":
            kind = "text"
        else:
            kind = "columns"
    if is_hub(data) and kind != "table":
        raise UserError(f"`format` is {kind}, but {data} is a table; leave it out.")
    if config.text and kind != "table":
        raise UserError(f"`text` is for tables, but {data} is read as {kind}; leave it out.")
    return kind
