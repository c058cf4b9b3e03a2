"""Convert TriviaQA's own files (arXiv 1705.03551) to the JSON of SQuAD 1.1.

    python examples/paper/triviaqa.py triviaqa-rc/qa/wikipedia-train.json --output trivia/train.json
    clozeworks finetune squad trivia --checkpoint run --output results/trivia

As in the paper (section 4.2, footnote): the first 400 tokens of each document that contains an
answer are a passage. No person marked the answers in it; the first place of the first alias that is
found is taken (distant supervision). A question's documents are one article, so that all of them
are held out or none. Figures are per question and document, whereas TriviaQA's script takes one
answer per question::

    triviaqa-rc/qa/wikipedia-train.json                   questions with answers and file names
    triviaqa-rc/evidence/wikipedia/England.txt            one document
"""

import json
import re
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec
from msgspec import Struct

NUM_TOKENS = 400
"""Between white space, of a document's beginning."""
EVIDENCE = Path("evidence", "wikipedia")
_TOKEN = re.compile(r"\S+")


class _Answer(Struct, rename="pascal"):
    value: str
    aliases: list[str] = []


class _Page(Struct, rename="pascal"):
    filename: str


class _TriviaQuestion(Struct, rename="pascal"):
    question_id: str
    question: str
    entity_pages: list[_Page] = []
    answer: _Answer | None = None


class _TriviaFile(Struct, rename="pascal"):
    data: list[_TriviaQuestion]


class SquadData(NamedTuple):
    """The questions in the form of SQuAD 1.1."""

    content: dict[str, Any]
    num_documents: int
    num_found: int
    """Documents whose beginning has an answer."""
    num_missing: int
    """Documents without a file."""


def convert(path: Path, *, labelled: bool = True) -> SquadData:
    """Return each question with each of its documents; if `labelled`, only with those whose
    beginning has an answer.
    """
    try:
        questions = msgspec.json.decode(path.read_bytes(), type=_TriviaFile).data
    except (ValueError, RecursionError) as error:
        raise click.ClickException(f"{path} is not in TriviaQA's format ({error}).") from None
    folder = _evidence_folder(path)
    articles: list[dict[str, Any]] = []
    num_documents = num_found = num_missing = 0
    for question in questions:
        paragraphs: list[dict[str, Any]] = []
        for page in question.entity_pages:
            num_documents += 1
            document = folder / page.filename
            if not document.is_file():
                num_missing += 1
                continue
            passage = _beginning(document.read_text(encoding="utf-8", errors="replace"))
            answers = _located(question.answer, passage)
            if answers:
                num_found += 1
            elif labelled:
                continue
            located = [{"text": text, "answer_start": start} for text, start in answers]
            asked = {
                "id": f"{question.question_id}:{page.filename}",
                "question": question.question,
                "answers": located,
            }
            paragraphs.append({"context": passage, "qas": [asked]})
        if paragraphs:
            articles.append({"title": question.question_id, "paragraphs": paragraphs})
    content = {"version": "1.1", "data": articles}
    return SquadData(content, num_documents, num_found, num_missing)


def _evidence_folder(path: Path) -> Path:
    for parent in (path.parent, path.parent.parent):
        if (parent / EVIDENCE).is_dir():
            return parent / EVIDENCE
    raise click.ClickException(
        f"{path} needs its documents: unpack {EVIDENCE} beside it, or in the folder above."
    )


def _beginning(text: str) -> str:
    """Return the first tokens of a document."""
    end = 0
    for token in islice(_TOKEN.finditer(text), NUM_TOKENS):
        end = token.end()
    return text[:end]


def _located(answer: _Answer | None, passage: str) -> list[tuple[str, int]]:
    """Return the aliases, the one that the passage has first; empty if it has none."""
    if answer is None:
        return []
    aliases = list(dict.fromkeys(filter(str.strip, (answer.value, *answer.aliases))))
    for alias in aliases:
        # As a whole word, in any case.
        match = re.search(rf"(?<!\w){re.escape(alias)}(?!\w)", passage, re.IGNORECASE)
        if match:
            others = [(other, -1) for other in aliases if other != alias]
            return [(match.group(), match.start()), *others]
    return []


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--output", required=True, type=click.Path(path_type=Path))
@click.option("--all", "every", is_flag=True, help="Documents without an answer too, to predict.")
def main(file: Path, output: Path, every: bool) -> None:
    """Convert a FILE of questions."""
    converted = convert(file, labelled=not every)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(converted.content, ensure_ascii=False), encoding="utf-8")
    click.echo(
        f"{converted.num_found:,} of {converted.num_documents:,} documents have an answer in their "
        f"first {NUM_TOKENS} tokens; {converted.num_missing:,} have no file."
    )


if __name__ == "__main__":
    main()
