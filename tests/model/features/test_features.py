"""Hidden states to Parquet: parity with transformers, formats, and mistakes."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import transformers
from clozeworks.model.checkpoint import Checkpoint
from clozeworks.model.features import features as module
from clozeworks.model.features.config import FeaturesConfig
from clozeworks.model.features.features import Extractor, extract_features, resolve_layers
from clozeworks.model.tasks.batches import Feature, TaskBatch, make_batch
from clozeworks.model.tokenizer import TextTokenizer
from clozeworks.pipeline.errors import UserError

from tests.fixtures.checkpoint_fixture import make_checkpoint
from tests.fixtures.hub_server import served

TEXTS = [
    "the films was very-good", "", "b", "bad dull . ! unknownword", "a book is not [SEP] good",
] * 3  # fmt: skip


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("model") / "checkpoint", num_hidden_layers=3)


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("data") / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS))
    return path


def extract(checkpoint: Path, data: Path, output: Path, **options: Any) -> pa.Table:
    config = FeaturesConfig(**{"device": "cpu", **options})
    counts = extract_features(checkpoint, data, output, config)
    table = pq.read_table(output)
    assert counts["vectors"] == table.num_rows
    return table


def vectors(table: pa.Table, column: str) -> np.ndarray:
    chunks = table[column].combine_chunks()
    return chunks.flatten().to_numpy(zero_copy_only=False).reshape(len(table), -1)


def their_states(checkpoint: Path, text: str) -> np.ndarray:
    """Return the hidden states (layers, tokens with [CLS] and [SEP], size) by transformers."""
    model = transformers.BertModel.from_pretrained(checkpoint, attn_implementation="eager").eval()
    ids = TextTokenizer(checkpoint).row(TextTokenizer(checkpoint).token_ids([text])[0], None, 64)[0]
    with torch.inference_mode():
        states = model(torch.from_numpy(ids).long()[None], output_hidden_states=True).hidden_states
    return torch.cat(list(states)).numpy()


@pytest.mark.slow
def test_hidden_states_of_tokens_words_and_texts_are_those_of_transformers(
    checkpoint, texts, tmp_path
):
    expected = [their_states(checkpoint, text) for text in TEXTS[:5]] * 3
    tokens = extract(checkpoint, texts, tmp_path / "tokens.parquet", layers=(0, -1, 2))
    words = extract(checkpoint, texts, tmp_path / "words.parquet", layers=(0, -1, 2), per="word")
    whole = extract(checkpoint, texts, tmp_path / "texts.parquet", layers=(0, -1, 2), per="text")
    assert tokens.column_names == ["text", "index", "token", "layer_0", "layer_3", "layer_2"]
    assert words.column_names[2] == "word"
    assert whole.column_names == ["text", "layer_0", "layer_3", "layer_2"]
    for layer in (0, 2, 3):
        inner = np.concatenate([states[layer, 1:-1] for states in expected])
        np.testing.assert_allclose(vectors(tokens, f"layer_{layer}"), inner, rtol=0, atol=1e-5)
        means = np.stack([states[layer].mean(0) for states in expected])
        np.testing.assert_allclose(vectors(whole, f"layer_{layer}"), means, rtol=0, atol=1e-5)
    # "films" and "very-good" have several tokens.
    rows = words.slice(0, words["text"].to_pylist().count(0))
    assert rows["word"].to_pylist() == ["the", "films", "was", "very-good"]
    np.testing.assert_allclose(
        vectors(rows, "layer_3"), expected[0][3, [1, 2, 4, 5]], rtol=0, atol=1e-5
    )


def test_rows_are_numbered_in_the_order_of_the_data(checkpoint, texts, tmp_path):
    tokenizer = TextTokenizer(checkpoint)
    tokens = extract(checkpoint, texts, tmp_path / "tokens.parquet")
    ids = [tokenizer.token_ids([text])[0] for text in TEXTS]
    assert tokens["text"].to_pylist() == [number for number, row in enumerate(ids) for _ in row]
    assert tokens["index"].to_pylist() == [index for row in ids for index in range(len(row))]
    assert tokens["token"].to_pylist() == [tokenizer.token(token) for row in ids for token in row]
    whole = extract(checkpoint, texts, tmp_path / "texts.parquet", per="text")
    assert whole["text"].to_pylist() == list(range(15))


def test_unknown_tokens_are_a_notice(checkpoint, tmp_path, capsys):
    for words, warned in (("the films was very-good", False), ("neither word", True)):
        (tmp_path / "texts.txt").write_text(words)
        extract(checkpoint, tmp_path / "texts.txt", tmp_path / f"{warned}.parquet")
        assert ("100% of the tokens are unknown" in capsys.readouterr().err) is warned


def test_long_texts_are_cut_with_a_notice(checkpoint, tmp_path, capsys):
    path = tmp_path / "long.txt"
    words = ["the", "film", "was", "very", "dull", "films"] * 5
    path.write_text(" ".join(words) + "\nbad\n")
    tokens = extract(checkpoint, path, tmp_path / "a.parquet", max_length=22)
    assert tokens["text"].to_pylist() == [0] * 20 + [1]
    assert "Cut 1 of 2 texts to 22 tokens" in capsys.readouterr().err
    # The words that begin within the 20 tokens.
    starts = np.cumsum([0] + [1 + (word == "films") for word in words])[:-1]
    read = extract(checkpoint, path, tmp_path / "b.parquet", max_length=22, per="word")
    assert read["word"].to_pylist() == [*words[: int((starts < 20).sum())], "bad"]


def test_tables_are_read(checkpoint, tmp_path):
    table = tmp_path / "a.CSV"
    table.write_text('id,sentence,note\n1,"the film\nwas",x\n2,bad,y\n')
    words = extract(checkpoint, table, tmp_path / "a.parquet", per="word")
    assert words["word"].to_pylist() == ["the", "film", "was", "bad"]
    noted = extract(checkpoint, table, tmp_path / "b.parquet", per="word", text="note")
    assert noted["word"].to_pylist() == ["x", "y"]


def write_parquet(path: Path, rows: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"sentence": rows, "label": [0] * len(rows)}), path)


@pytest.mark.slow
def test_a_data_set_is_read_as_the_file_of_its_split_is(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    for split, texts in (("train", ["bad"]), ("validation", TEXTS)):
        write_parquet(tmp_path / "set" / f"{split}-00000-of-00001.parquet", texts)
    file = tmp_path / "set" / "validation-00000-of-00001.parquet"
    expected = extract(checkpoint, file, tmp_path / "file.parquet", per="word")
    name, output = Path(f"hf:{tmp_path / 'set'}:validation"), tmp_path / "set.parquet"
    assert extract(checkpoint, name, output, per="word").equals(expected)
    assert extract(checkpoint, Path(f"hf:{tmp_path / 'set'}"), tmp_path / "b.parquet")[
        "token"
    ].to_pylist() == ["bad"]
    with pytest.raises(UserError, match=r"has no split .validations.; it has train, validation"):
        extract(checkpoint, Path(f"{name}s"), tmp_path / "c.parquet")
    with pytest.raises(UserError, match=r"validation, row 1: there is no column text, only"):
        extract(checkpoint, name, tmp_path / "c.parquet", text="text")


@pytest.mark.slow
def test_a_data_set_of_the_hub_is_streamed(checkpoint, tmp_path):
    for number in (0, 1):
        part = TEXTS[5 * number : 5 * number + 5]
        lines = "".join(json.dumps({"text": text}) + "\n" for text in part)
        path = tmp_path / "hub" / "owner" / "texts" / f"test-0000{number}-of-00002.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(lines)
    home = tmp_path / "home"
    command = [sys.executable, "-m", "clozeworks.cli.main", "features", str(checkpoint)]
    command += [
        "hf:owner/texts:test",
        "--output",
        "a.parquet",
        "--per",
        "text",
        "--layers",
        "-1,-2",
    ]
    environment = {**os.environ, "HF_HOME": str(home), "NO_PROXY": "127.0.0.1"}
    with served(tmp_path / "hub") as endpoint:
        environment["HF_ENDPOINT"] = endpoint
        ended = subprocess.run(
            command, env=environment, capture_output=True, text=True, cwd=tmp_path
        )
    assert ended.returncode == 0, ended.stderr
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS[:10]))
    options = {"per": "text", "layers": (-1, -2)}
    expected = extract(checkpoint, tmp_path / "texts.txt", tmp_path / "b.parquet", **options)
    assert pq.read_table(tmp_path / "a.parquet").equals(expected)
    # Streamed: no copy of the files is left.
    assert not [path for path in home.rglob("*") if path.suffix in (".jsonl", ".arrow", ".parquet")]


def test_an_interrupted_command_leaves_nothing_and_nothing_is_written_over(
    checkpoint, texts, tmp_path
):
    config = FeaturesConfig(device="cpu", per="word", layers=(-1, -2))
    output = tmp_path / "a.parquet"
    live: list[dict[str, Any]] = []

    def killed(numbers: dict[str, Any]) -> None:
        if numbers["step"] == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract_features(checkpoint, texts, output, config, killed, texts_at_once=4)
    assert not output.exists()
    whole = extract_features(checkpoint, texts, output, config, live.append, texts_at_once=4)
    assert live[-1]["step"] == live[-1]["steps"] == whole["texts"] == 15
    assert pq.ParquetFile(output).num_row_groups == 4
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]
    footer = pq.read_schema(output).metadata or {}
    assert json.loads(footer[b"clozeworks"])["layers"] == [-1, -2]
    assert footer[b"clozeworks.schema_version"] == b"1"
    with pytest.raises(UserError, match=r"a\.parquet exists"):
        extract_features(checkpoint, texts, output, config)
    shorter = FeaturesConfig(device="cpu", per="text")
    extract_features(checkpoint, texts, output, shorter, overwrite=True)
    assert pq.read_metadata(output).num_rows == 15
    with pytest.raises(UserError, match="`output` is the data itself"):
        extract(checkpoint, texts, texts)


def test_mistakes_are_named(checkpoint, texts, tmp_path):
    output = tmp_path / "a.parquet"
    with pytest.raises(UserError, match=r"4, but .* layers 0 \(the embeddings\) to 3"):
        extract(checkpoint, texts, output, layers=(4,))
    with pytest.raises(UserError, match="twice"):
        resolve_layers([3, -1], 3)
    with pytest.raises(UserError, match="must name a layer"):
        FeaturesConfig(layers=())
    with pytest.raises(UserError, match="`max_length` is 65, but the model"):
        extract(checkpoint, texts, output, max_length=65)
    with pytest.raises(UserError, match="`text` is for tables"):
        extract(checkpoint, texts, output, text="a")
    with pytest.raises(UserError, match=r" does not exist\.$"):
        extract(checkpoint, tmp_path / "none.txt", output)
    with pytest.raises(UserError, match="is a folder; give one of the files in it"):
        extract(checkpoint, tmp_path, output)
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(UserError, match="contains no texts"):
        extract(checkpoint, tmp_path / "empty.txt", output)
    assert not list(tmp_path.glob("a.parquet*"))


def test_no_batch_has_more_tokens_than_asked_for(checkpoint, monkeypatch):
    extractor = Extractor(Checkpoint.open(checkpoint), FeaturesConfig(device="cpu"), 40)
    sizes = []

    def watched(features: list[Feature], widths: Sequence[int]) -> TaskBatch:
        batch = make_batch(features, widths)
        sizes.append(batch.input_ids_BL.numel())
        return batch

    monkeypatch.setattr(module, "make_batch", watched)
    extractor.table(TEXTS, 0)
    assert len(sizes) > 1
    assert max(sizes) <= 40


def test_rows_are_by_default_as_long_as_in_pre_training(tmp_path):
    checkpoint = make_checkpoint(tmp_path / "checkpoint")
    assert Extractor(Checkpoint.open(checkpoint), FeaturesConfig()).max_length == 64
    (checkpoint / "tokenizer_config.json").write_text('{"model_max_length": 16}')
    assert Extractor(Checkpoint.open(checkpoint), FeaturesConfig()).max_length == 16
