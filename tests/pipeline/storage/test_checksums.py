"""A bit that flips in a file is found: by its page's checksum when it is read, or by its digest."""

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clozeworks.cli.main import main
from clozeworks.model.pretraining import data
from clozeworks.pipeline.config import BuildConfig, IngestConfig, RunOptions, VocabConfig
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.storage.shards import read_columns
from clozeworks.pipeline.vocabulary.pipeline import learn_vocabulary

from tests.fixtures.manifest_fixture import editable
from tests.fixtures.stages_fixture import Configs, make_stages

FLIPS = 150


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "texts").mkdir()
    for number in range(40):
        text = " ".join(f"Page {number + i} of book {i} tells of {i * i} bears." for i in range(20))
        (folder / "texts" / f"{number}.txt").write_text(text)
    configs = Configs(
        IngestConfig(validation_share=0.1),
        VocabConfig(size=200),
        BuildConfig(duplicates=1, max_length=32),
    )
    make_stages(folder / "texts", folder, configs)
    return folder


def read_documents(path: Path) -> Any:
    names = ("doc_id", "source", "language", "title", "sentences")
    return [batch.to_pydict() for batch in read_columns(str(path), *names)]


def read_instances(path: Path) -> Any:
    directory = data.open_instances(str(path.parent))
    rows = [data.read_group(directory, group) for group in directory.row_groups]
    return [[row.input_ids.tolist(), row.masked_positions.tolist()] for row in rows]


@pytest.mark.parametrize(
    ("folder", "read"), [("documents", read_documents), ("instances", read_instances)]
)
def test_a_flipped_bit_never_changes_what_is_read(
    corpus: Path, folder: str, read: Callable[[Path], Any]
):
    path = corpus / folder / "train-00000-of-00001.parquet"
    content = path.read_bytes()
    expected = read(path)
    draw = random.Random(1)
    outcomes: Counter[str] = Counter()
    try:
        for _ in range(FLIPS):
            flipped = bytearray(content)
            flipped[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
            path.write_bytes(flipped)
            try:
                outcomes["same" if read(path) == expected else "silent"] += 1
            except UserError:
                outcomes["refused"] += 1
    finally:
        path.write_bytes(content)
    assert outcomes["silent"] == 0
    assert outcomes["refused"] > FLIPS / 2


def test_verify_compares_digests(corpus: Path, capsys: pytest.CaptureFixture[str]):
    path = corpus / "documents" / "validation-00000-of-00001.parquet"
    content = path.read_bytes()
    main(["audit", str(corpus / "documents"), "--verify"])
    assert "All files are intact." in capsys.readouterr().out
    # A byte of the footer that no reader looks at.
    position = content.rindex(b"parquet-cpp")
    path.write_bytes(content[:position] + b"P" + content[position + 1 :])
    try:
        main(["show", str(corpus / "documents")])
        with pytest.raises(SystemExit):
            main(["audit", str(corpus / "documents"), "--verify"])
    finally:
        path.write_bytes(content)
    assert "does not have the digest recorded in manifest.json" in capsys.readouterr().err


def test_verify_compares_the_vocabulary(corpus: Path, capsys: pytest.CaptureFixture[str]):
    command = ["audit", str(corpus / "vocab"), "--verify"]
    main(command)
    changes = (
        ("vocab.txt", "\n##", "\n##x"),
        ("tokenizer.json", '"clean_text": true', '"clean_text": false'),
    )
    for name, before, after in changes:
        path = corpus / "vocab" / name
        content = path.read_text()
        path.write_text(content.replace(before, after, 1))
        with pytest.raises(SystemExit):
            main(command)
        path.write_text(content)
        assert "is not the one that its manifest records" in capsys.readouterr().err


def test_a_vocabulary_and_shards_of_others_are_refused(corpus: Path, tmp_path: Path):
    other = tmp_path / "other"
    learn_vocabulary(
        str(corpus / "documents"), str(other), VocabConfig(size=100), RunOptions(workers=1)
    )
    tokenizer = corpus / "instances" / "tokenizer.json"
    vocabulary = corpus / "instances" / "vocab.txt"
    kept = tokenizer.read_bytes(), vocabulary.read_bytes()
    tokenizer.write_bytes((other / "tokenizer.json").read_bytes())
    vocabulary.write_bytes((other / "vocab.txt").read_bytes())
    try:
        with pytest.raises(UserError, match="is not the one that its instances were built with"):
            _ = data.open_instances(str(corpus / "instances")).vocabulary
    finally:
        tokenizer.write_bytes(kept[0])
        vocabulary.write_bytes(kept[1])
    manifest = corpus / "instances" / "manifest.json"
    text = manifest.read_text()
    rows = data.open_instances(str(corpus / "instances")).num_rows
    edited = json.dumps(editable(manifest))
    manifest.write_text(edited.replace(f'"rows": {rows},', f'"rows": {rows + 1},'))
    try:
        with pytest.raises(UserError, match=r"rows, but manifest\.json records"):
            data.open_instances(str(corpus / "instances"))
    finally:
        manifest.write_text(text)
