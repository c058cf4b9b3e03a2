"""``clozeworks export``: what a model needs on the Hub, and nothing else."""

import re
import time
from pathlib import Path

import pytest
import transformers
from clozeworks.cli.main import main
from clozeworks.model.card import read_languages, with_license
from clozeworks.model.export import ONNX_FILES, export
from clozeworks.pipeline.errors import RunError, UserError
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
UNKNOWN = "The licences of these are not recorded; look them up before you publish the model."
FILES = [
    "model.safetensors",
    "config.json",
    "README.md",
    "vocab.txt",
    "tokenizer.json",
    "tokenizer_config.json",
]


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
    assert list(export(run, tmp_path / "hub").sizes) == FILES  # again, over its own files
    (run / "task.json").write_text("{}")
    assert "task.json" in export(run, tmp_path / "hub").sizes
    (run / "task.json").unlink()  # another model
    assert list(export(run, tmp_path / "hub").sizes) == FILES
    assert sorted(path.name for path in (tmp_path / "hub").iterdir()) == sorted(FILES)


def test_an_edited_card_is_not_overwritten(run, tmp_path):
    export(run, tmp_path / "hub")
    (tmp_path / "hub" / "README.md").write_text(f"{CARD}What it is for.\n")
    with pytest.raises(
        UserError,
        match=r"hub contains another README\.md, perhaps edited\. Replace it with `overwrite`",
    ):
        export(run, tmp_path / "hub")
    assert (tmp_path / "hub" / "README.md").read_text().endswith("What it is for.\n")


def test_a_licence_replaces_that_of_the_card(run, tmp_path):
    export(run, tmp_path / "hub", "cc-by-sa-4.0")
    card = ModelCard.load(tmp_path / "hub" / "README.md")
    assert (card.data.get("license"), card.data.get("language")) == ("cc-by-sa-4.0", ["en", "lt"])
    assert card.text.endswith("license: as it says\n")
    assert (run / "README.md").read_text() == CARD


@pytest.mark.parametrize(
    ("card", "written"),
    [
        ("---\ntags:\n- bert\n---\n", "---\ntags:\n- bert\nlicense: mit\n---\n"),
        (
            "---\nlicense: other\nlicense_name: x\ntags:\n- a\n---\n",
            "---\ntags:\n- a\nlicense: mit\n---\n",
        ),
        ("---\nlicense:\n- a\n- b\n---\n", "---\nlicense: mit\n---\n"),
        (
            f"---\ntags:\n- a\n---\nText\n\n{UNKNOWN}\n",
            "---\ntags:\n- a\nlicense: mit\n---\nText\n",
        ),
        ("# Title\n\n---\n", "---\nlicense: mit\n---\n\n# Title\n\n---\n"),
    ],
)
def test_a_licence_fits_any_card(card: str, written: str):
    assert with_license(card, "mit") == written
    assert ModelCard(written).data.get("license") == "mit"


def test_what_cannot_be_exported_is_refused(run, tmp_path):
    def refused(line: str, *args: object) -> None:
        with pytest.raises(UserError, match=f"^{re.escape(line)}$"):
            export(*args)  # pyright: ignore[reportArgumentType]

    other = "already contains other files (metrics.csv, …)"
    refused(f"{run} {other}. Choose another `output`.", run, run)
    (run / "README.md").unlink()
    what_next = "README.md is missing. Rerun the command that writes it."
    refused(f"{run} is not a finished run: {what_next}", run, tmp_path / "hub")
    refused(f"{tmp_path}/none does not exist.", tmp_path / "none", tmp_path / "hub")
    for license in ("CC BY: 4", "mit\nlanguage: xx"):
        with pytest.raises(
            UserError, match=r"(?s)^`license` is .* not the identifier of a licence"
        ):
            export(run, tmp_path / "hub", license)
    assert not (tmp_path / "hub").exists()


@pytest.mark.parametrize(
    ("head", "languages"),
    [
        ("language: en", ["en"]),
        ('language:\n- en\n- "zh-yue"\nlicense: mit', ["en", "zh-yue"]),
        ("license: mit\ntags:\n- en", []),
    ],
)
def test_languages_are_read_from_any_card(tmp_path, head: str, languages: list[str]):
    assert read_languages(tmp_path) == []
    (tmp_path / "README.md").write_text(f"---\n{head}\n---\n\nlanguage: fr\n")
    assert read_languages(tmp_path) == languages


@pytest.mark.slow
def test_a_model_is_exported_with_graphs_and_what_was_measured(run, tmp_path):
    exported = export(run, tmp_path / "hub", onnx=True, int8=True)
    assert [graph.name for graph in exported.onnx] == list(ONNX_FILES)
    assert exported.onnx[0].difference < 1e-4 < exported.onnx[1].difference
    assert set(ONNX_FILES) < exported.sizes.keys()
    card = (tmp_path / "hub" / "README.md").read_text()
    assert "## ONNX" in card and f"| `{ONNX_FILES[1]}` |" in card
    # Without graphs, those of before are removed; the card of before is another.
    with pytest.raises(UserError, match="perhaps edited"):
        export(run, tmp_path / "hub")
    export(run, tmp_path / "hub", overwrite=True)
    assert not list((tmp_path / "hub").glob("onnx/*"))
    with pytest.raises(UserError, match="`int8` and `dev` have no effect without `onnx`"):
        export(run, tmp_path / "hub", int8=True)


@pytest.mark.slow
def test_a_graph_that_computes_something_else_is_refused(run, tmp_path, monkeypatch):
    monkeypatch.setattr("clozeworks.model.onnx.export.TOLERANCE", 0.0)
    with pytest.raises(RunError, match=r"differs from PyTorch by .* it was not kept"):
        export(run, tmp_path / "hub", onnx=True)
    assert not (tmp_path / "hub" / "onnx").exists()


def test_languages_are_found_in_linear_time(tmp_path):
    (tmp_path / "README.md").write_text("---\nlanguage: " + "-" * 60_000 + "\nlicense: mit\n---\n")
    start = time.process_time()
    assert read_languages(tmp_path) == []
    assert time.process_time() - start < 1
