"""``clozeworks export``: what a model needs on the Hub, and nothing else."""

import re
import shutil
from pathlib import Path

import pytest
import transformers
from clozeworks.cli.main import main
from clozeworks.model.card import read_languages, with_license
from clozeworks.model.export import export
from clozeworks.pipeline.errors import UserError
from huggingface_hub import ModelCard

from tests.fixtures.checkpoint_fixture import make_checkpoint

CARD = """---
language:
- en
- lt
license: mit
tags:
- bert
---

# A model

license: as it says
"""
FILES = [
    "model.safetensors", "config.json", "README.md", "vocab.txt", "tokenizer.json",
    "tokenizer_config.json",
]  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a finished run, as far as `export` looks at it."""
    run = make_checkpoint(tmp_path / "run")
    (run / "README.md").write_text(CARD)
    (run / "metrics.csv").write_text("step\n")
    (run / "checkpoints" / "best").mkdir(parents=True)
    return run


@pytest.mark.slow
def test_only_the_model_its_tokenizer_and_its_card_are_copied(run, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main(["export", "run", "--output", "hub"])
    table = " ".join(capsys.readouterr().out.split())
    assert table.endswith("to upload it hf upload YOUR-NAME/hub hub")
    assert sorted(path.name for path in (tmp_path / "hub").iterdir()) == sorted(FILES)
    for name in FILES:
        assert (tmp_path / "hub" / name).read_bytes() == (run / name).read_bytes()
    transformers.BertForPreTraining.from_pretrained(tmp_path / "hub")
    # Another model, with one file more, then this one again: what is not its own is removed.
    (run / "task.json").write_text("{}")
    assert "task.json" in export(run, tmp_path / "hub", overwrite=True)
    (run / "task.json").unlink()
    assert export(run, tmp_path / "hub", overwrite=True) == FILES
    assert sorted(path.name for path in (tmp_path / "hub").iterdir()) == sorted(FILES)


def test_a_model_that_is_there_may_have_an_edited_card(run, tmp_path):
    export(run, tmp_path / "hub")
    (tmp_path / "hub" / "README.md").write_text(f"{CARD}What it is for.\n")
    with pytest.raises(UserError, match=r"hub contains .*model\.safetensors.* with `overwrite`"):
        export(run, tmp_path / "hub")
    assert (tmp_path / "hub" / "README.md").read_text().endswith("What it is for.\n")


def test_a_licence_replaces_that_of_the_card(run, tmp_path):
    export(run, tmp_path / "hub", "cc-by-sa-4.0")
    card = ModelCard.load(tmp_path / "hub" / "README.md")
    assert (card.data.get("license"), card.data.get("language")) == ("cc-by-sa-4.0", ["en", "lt"])
    assert card.text.endswith("license: as it says\n")
    assert (run / "README.md").read_text() == CARD


@pytest.mark.parametrize(
    "head",
    [
        "tags:\n- bert",
        "license: other\nlicense_name: x\nlicense_link: LICENSE\ntags:\n- bert",
        "license:\n- a\n- b\ntags:\n- bert",
    ],
)
def test_a_licence_replaces_any_other(head: str):
    card = ModelCard(with_license(f"---\n{head}\n---\n\n# Title\n", "mit"))
    assert card.data.to_dict() == {"tags": ["bert"], "license": "mit"}
    assert card.text == "\n# Title\n"


def test_metadata_that_cannot_be_read_are_refused():
    with pytest.raises(UserError, match=r"metadata at the beginning of README\.md cannot be read"):
        with_license("---\nlicense: [\n---\n", "mit")


def test_what_cannot_be_exported_is_refused(run, tmp_path):
    def refused(line: str, *args: object) -> None:
        with pytest.raises(UserError, match=f"^{re.escape(line)}$"):
            export(*args)  # pyright: ignore[reportArgumentType]

    refused(f"`output` is the model itself ({run}/.); give another folder.", run, f"{run}/.")
    # Private texts in folders, one of which has the name of a file of ours.
    for name in ("documents", "README.md"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.parquet").touch()
        other = f"contains other files ({name}, …)"
        refused(f"{tmp_path} {other}. Choose another `output`.", run, tmp_path, None, True)
        shutil.rmtree(tmp_path / name)
    card = tmp_path / "data" / "README.md"
    card.parent.mkdir()
    card.write_text("of a data set")
    content = "README.md. Replace what is there with `overwrite`."
    refused(f"{card.parent} contains {content}", run, card.parent)
    assert card.read_text() == "of a data set"
    link = run / "tokenizer_config.json"
    link.rename(tmp_path / "secret")
    link.symlink_to(tmp_path / "secret")
    out = "to what may not be meant for others: put a copy of that file in its place."
    refused(f"{link} is a link out of the folder, {out}", run, tmp_path / "hub")
    (tmp_path / "secret").rename(run / "elsewhere.json")
    link.unlink()
    link.symlink_to("elsewhere.json")
    assert link.name in export(run, tmp_path / "clone")
    shutil.rmtree(tmp_path / "clone")
    (run / "model.safetensors").rename(run / "weights")
    what_next = "model.safetensors is missing. Rerun the command that writes it."
    refused(f"{run} is not a finished run: {what_next}", run, tmp_path / "hub")
    (run / "weights").rename(run / "model.safetensors")
    (run / "README.md").unlink()
    what_next = "README.md is missing. Rerun the command that writes it."
    refused(f"{run} is not a finished run: {what_next}", run, tmp_path / "hub")
    refused(f"{tmp_path}/none does not exist.", tmp_path / "none", tmp_path / "hub")
    for license in ("CC BY: 4", "mit\nlanguage: xx"):
        with pytest.raises(UserError, match=r"(?s)^`license` is .* not the identifier of a"):
            export(run, tmp_path / "hub", license)
    assert not (tmp_path / "hub").exists()


@pytest.mark.parametrize(
    ("head", "languages"),
    [
        ("language: en", ["en"]),
        ('language:\n- en\n- "zh-yue"\nlicense: mit', ["en", "zh-yue"]),
        ("license: mit\ntags:\n- en", []),
        ("language:\n- no\n- lt", ["lt"]),
        ("language: [", []),
        ("1: 2", []),
    ],
)
def test_languages_are_read_from_any_card(tmp_path, head: str, languages: list[str]):
    assert read_languages(tmp_path) == []
    (tmp_path / "README.md").write_text(f"---\n{head}\n---\n\nlanguage: fr\n")
    assert read_languages(tmp_path) == languages
