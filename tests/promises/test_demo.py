"""README's first screen is what `make demo` makes and prints; where that has run, as in CI."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clozeworks.pipeline.manifests import DocumentsManifest, InstancesManifest
from clozeworks.pipeline.storage.state import read_manifest

from tests.fixtures.checkpoint_fixture import fill

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "demo"
README = (ROOT / "README.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.skipif(
    not (DEMO / "word-order-random" / "summary.json").exists(), reason="run `make demo` first"
)


def in_readme(pattern: str) -> re.Match[str]:
    """Return where README, as one line, has `pattern`."""
    found = re.search(pattern, " ".join(README.split()))
    assert found is not None
    return found


def accuracy(name: str) -> float:
    return json.loads((DEMO / name / "summary.json").read_bytes())["best"]["scores"]["accuracy"]


def column(directory: str, name: str) -> list[Any]:
    tables = [pq.read_table(file, columns=[name]) for file in (DEMO / directory).glob("*.parquet")]
    return pa.concat_tables(tables)[name].to_pylist()


def test_the_accuracies():
    pretrained, random = in_readme(r"right in (\d+)% of 400 .* random weights in (\d+)%").groups()
    # Another processor rounds otherwise.
    assert accuracy("word-order") == pytest.approx(int(pretrained) / 100, abs=0.02)
    assert accuracy("word-order-random") == pytest.approx(int(random) / 100, abs=0.04)


def test_the_filled_mask():
    text, percent, token = in_readme(r" fill (.*?\[MASK\].*?\.) (\d+)% (\w+)").groups()
    ((guess,),) = fill(ROOT / "examples" / "model", text, top=1)
    assert guess.token == token
    assert guess.probability == pytest.approx(int(percent) / 100, abs=0.1)


def test_the_document_and_its_instance():
    sentence = in_readme(r"document (.*?) instance")[1]
    documents = column("documents", "sentences")
    assert any(sentence in " ".join(each) for each in documents)
    tokens = in_readme(r"instance A (.*?) labels")[1].replace(" B ", " ").split()
    vocabulary = (DEMO / "instances" / "vocab.txt").read_text(encoding="utf-8").splitlines()
    wanted = [vocabulary.index(token) for token in tokens]
    assert wanted in column("instances", "input_ids")


def test_the_outputs_of_the_three_commands():
    documents = read_manifest(str(DEMO / "documents"), DocumentsManifest)
    assert documents.words_kept == number(in_readme(r"words kept ([\d,]+) of")[1])
    fertility = json.loads((DEMO / "vocab" / "manifest.json").read_bytes())["report"]["validation"]
    assert f"{fertility['tokens_per_word']:.3f}" == in_readme(r"tokens per word ([\d.]+)")[1]
    instances = read_manifest(str(DEMO / "instances"), InstancesManifest)
    [shard] = [shard for shard in instances.shards if shard.split == "train"]
    assert shard.rows == number(in_readme(r"train ([\d,]+) rows")[1])
    assert shard.sha256.startswith(in_readme(r"(\w+)…  ?corpus/instances")[1])
    summary = json.loads((DEMO / "model" / "summary.json").read_bytes())
    for name, metric in (("loss", "mlm_loss"), ("accuracy", "mlm_accuracy")):
        shown = in_readme(rf"masked-LM {name}, held out ([\d.]+) before, ([\d.]+) after").groups()
        measured = [summary[when][metric] for when in ("initial", "final")]
        assert [float(each) for each in shown] == pytest.approx(measured, rel=0.03, abs=0.001)


def number(shown: str) -> int:
    return int(shown.replace(",", ""))
