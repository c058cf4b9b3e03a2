"""Articles of a template are named, whatever stands in their places; others are not."""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from clozeworks.cli.main import main
from clozeworks.pipeline.auditing.machine_made import find_machine_made
from clozeworks.pipeline.storage.state import MACHINE_MADE as FILE

from tests.fixtures.documents_fixture import TRAIN, VALIDATION, Document, write_documents

SIDES = ["north", "south", "east", "west"]
COMMON = ["the", "of", "and", "in", "a", "was", "is", "on", "for", "with", "to", "from", "he"]


def name(rng: random.Random) -> str:
    return "".join(rng.choices(["ka", "lo", "mir", "sten", "bo", "ruz", "ho"], k=4)).capitalize()


def village(rng: random.Random) -> list[str]:
    sentences = [
        f"{name(rng)} is a village in the district of {name(rng)}, in {name(rng)} County.",
        f"It lies {rng.randint(2, 99)} km to the {rng.choice(SIDES)} of the town of {name(rng)}.",
    ]
    if rng.random() < 0.5:
        sentences.append(f"At the census of 2001 it had a population of {rng.randint(9, 9999):,}.")
    return sentences


def species(rng: random.Random) -> list[str]:
    return [
        f"{name(rng)} {name(rng)} ist eine Art der Gattung {name(rng)} in der Familie {name(rng)}.",
        f"Sie wurde im Jahr {rng.randint(1790, 1999)} von {name(rng)} aus der Stadt beschrieben.",
    ]


def article(rng: random.Random) -> list[str]:
    """Sentences of the words that templates have, too, in any order."""
    return [" ".join(rng.choices([*COMMON, name(rng), "12"], k=14)) for _ in range(6)]


def documents(make: Callable[[random.Random], list[str]], number: int, language: str = "en"):
    rng = random.Random(make.__name__)
    return [(make.__name__, language, make(rng)) for _ in range(number)]


def write(path: Path, train: Sequence[Document], validation: Sequence[Document] = ()) -> str:
    return write_documents(path, {TRAIN: train, VALIDATION: validation})


def test_stubs_are_named_in_each_language_and_split_and_articles_are_not(tmp_path):
    english = [*documents(article, 300), *documents(village, 60)]
    german = documents(species, 40, "de")
    directory = write(tmp_path, [*english, *german[:30]], german[30:])
    doc_ids, num_documents = find_machine_made(directory)
    wanted = [f"{TRAIN}:{i}" for i in range(300, 390)] + [f"{VALIDATION}:{i}" for i in range(10)]
    assert (sorted(doc_ids), num_documents) == (sorted(wanted), 400)
    lines = (tmp_path / FILE).read_text().splitlines()
    assert [json.loads(line)["doc_id"] for line in lines] == doc_ids


@pytest.mark.parametrize(("number", "num_named"), [(21, 21), (20, 0)])
def test_a_form_must_be_that_of_more_than_twenty_documents(tmp_path, number, num_named):
    # With enough others for words to be frequent; a document that repeats itself counts once.
    [(source, language, sentences), *_] = documents(species, 1, "en")
    train = [*documents(article, 50), *documents(species, number - 1, "en")]
    train.append((source, language, sentences * 2))
    frequent = ["ist", "eine", "der", "in", "Sie", "wurde", "im", "Jahr", "von", "aus"]
    train += [("words", "en", [f"{word} {word}"]) for word in frequent for _ in range(21)]
    assert len(find_machine_made(write(tmp_path, train))[0]) == num_named


def test_a_document_with_more_of_its_own_is_not_named(tmp_path):
    stubs = documents(village, 60)
    rng = random.Random(1)
    longer = [("longer", "en", [*village(rng), *article(rng)]) for _ in range(40)]
    doc_ids, _ = find_machine_made(write(tmp_path, [*documents(article, 100), *longer, *stubs]))
    assert doc_ids == [f"{TRAIN}:{i}" for i in range(140, 200)]


def test_documents_without_words_are_none(tmp_path):
    directory = write(
        tmp_path, [("empty", "en", []), ("marks", "en", ["?!", ""]), ("s", "en", ["a"])]
    )
    assert find_machine_made(directory) == ([], 3)
    assert not (tmp_path / FILE).exists()


def test_audit_lists_them_beside_documents_that_are_a_source_as_before(tmp_path, capsys):
    rows = [*documents(article, 60), *documents(village, 40)]
    lines = [json.dumps({"text": " ".join(sentences)}) for _, _, sentences in rows]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    source = str(tmp_path / "rows.jsonl")
    for name in ("docs", "again"):
        output = str(tmp_path / name)
        main(["ingest", source, "--output", output, "--min-characters", "1", "--language", "en"])
        main(["audit", output])
        shown = " ".join(capsys.readouterr().out.split())
        assert "machine-made 40 of 100 documents (40.0%);" in shown
        assert (tmp_path / name / FILE).exists()
        source = output
