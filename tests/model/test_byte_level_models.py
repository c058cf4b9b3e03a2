"""Models with byte-level tokenizers, such as the published ModernBERT's, in every command."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import transformers
from clozeworks.model.config import PretrainConfig
from clozeworks.model.features.config import FeaturesConfig
from clozeworks.model.features.features import extract_features
from clozeworks.model.pretraining.evaluate import evaluate
from clozeworks.model.pretraining.new_vocabulary import old_pieces
from clozeworks.model.pretraining.pretrain import pretrain
from clozeworks.model.tokenizer import TextTokenizer
from clozeworks.pipeline.config import BuildConfig, RunOptions
from clozeworks.pipeline.instances.pipeline import build
from clozeworks.pipeline.vocabulary.files import read_vocabulary
from clozeworks.pipeline.vocabulary.normalization import Normalization
from clozeworks.pipeline.vocabulary.vocabulary import Vocabulary

from tests.fixtures.byte_level_fixture import write_published_tokenizer
from tests.fixtures.checkpoint_fixture import fill
from tests.fixtures.documents_fixture import TRAIN, VALIDATION, write_documents

TEXTS = ["The ant and the bear met.", "They didn't speak: 10 an hour.", "Then the ant left."]
WORDPIECE = Vocabulary(
    ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "##an", "an", ".", "가", "zzz", "é"),
    Normalization(lowercase=False, strip_accents=False),
)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a ModernBERT of two layers as `transformers` does, with a tokenizer of its form."""
    folder = write_published_tokenizer(tmp_path_factory.mktemp("published") / "model")
    vocabulary = read_vocabulary(str(folder))
    config = transformers.ModernBertConfig(
        vocab_size=len(vocabulary), hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=600, pad_token_id=vocabulary.pad_id,
        cls_token_id=vocabulary.cls_id, sep_token_id=vocabulary.sep_id,
        bos_token_id=vocabulary.cls_id, eos_token_id=vocabulary.sep_id,
    )  # fmt: skip
    transformers.ModernBertForMaskedLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> str:
    shards = {
        name: [("test", "en", TEXTS[: 1 + number % 3] * 2) for number in range(size)]
        for name, size in ((TRAIN, 30), (VALIDATION, 4))
    }
    return write_documents(tmp_path_factory.mktemp("documents"), shards)


@pytest.mark.slow
def test_a_published_model_goes_through_all_commands(
    published: Path, documents: str, tmp_path: Path
):
    instances = str(tmp_path / "instances")
    config = BuildConfig(pairing="none", max_length=600, duplicates=1)
    build(documents, str(published), instances, config, RunOptions(workers=1))
    # The ids of a document are those that transformers gives its text.
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(published / "tokenizer.json"))
    [row] = pq.read_table(tmp_path / "instances" / "validation-00000-of-00001.parquet").to_pylist()
    ids = np.array(row["input_ids"])
    ids[row["masked_lm_positions"]] = row["masked_lm_ids"]
    texts = [" ".join(TEXTS[: 1 + number % 3] * 2) for number in row["documents"]]
    assert ids.tolist() == [token for text in texts for token in theirs(text)["input_ids"]]

    before = evaluate(published, instances, device="cpu")
    run = tmp_path / "run"
    training = PretrainConfig(
        checkpoint=str(published), objective="mlm", steps=2, batch_size=2, learning_rate=1e-3
    )
    summary = pretrain(training, [instances], run)
    assert summary["initial"]["mlm_loss"] == pytest.approx(before["mlm_loss"], rel=1e-5)
    model = transformers.AutoModelForMaskedLM.from_pretrained(run)
    tokenizer = transformers.AutoTokenizer.from_pretrained(run)
    assert tokenizer(TEXTS[1])["input_ids"] == theirs(TEXTS[1])["input_ids"]
    assert tokenizer.pad_token_id == model.config.pad_token_id
    # "Ġthe" is shown as "the".
    [guesses] = fill(run, "The [MASK] left.", top=400)
    assert "the" in {guess.token for guess in guesses}
    assert not any("Ġ" in guess.token for guess in guesses)

    text = tmp_path / "texts.txt"
    text.write_text("\n".join(TEXTS) + "\n")
    counted = extract_features(run, text, tmp_path / "features.parquet", FeaturesConfig(per="word"))
    assert counted == {"texts": 3, "vectors": sum(len(text.split()) for text in TEXTS)}


@pytest.mark.parametrize("suffix", [".txt", ".jsonl"])
def test_the_vector_of_a_text_is_that_of_transformers(published: Path, tmp_path: Path, suffix: str):
    texts = [*TEXTS, "", "  the  ant\t."]
    data = tmp_path / f"texts{suffix}"
    lines = texts if suffix == ".txt" else [json.dumps({"text": text}) for text in texts]
    data.write_text("".join(f"{line}\n" for line in lines))
    config = FeaturesConfig(per="text", device="cpu")
    extract_features(published, data, tmp_path / "features.parquet", config)
    found = pq.read_table(tmp_path / "features.parquet")["layer_2"].to_pylist()
    encoder = transformers.AutoModel.from_pretrained(published).eval()
    tokenizer_file = str(published / "tokenizer.json")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=tokenizer_file)
    for text, vector in zip(texts, found, strict=True):
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        with torch.inference_mode():
            states = encoder(ids).last_hidden_state
        np.testing.assert_allclose(vector, states[0].mean(0), rtol=0, atol=1e-5)


def test_words_are_tokenised_with_their_space_and_offsets_are_without(published: Path):
    tokenizer = TextTokenizer(published)
    words = ["Then", "the", "ant"]
    by_word = tokenizer.word_ids(words, [True] * len(words))
    (whole,) = tokenizer.token_ids([" " + " ".join(words)])
    assert [token for ids in by_word for token in ids] == whole
    text = "He saw the ant."
    ((ids, offsets),) = tokenizer.token_ids_and_offsets([text])
    covered = [text[start:end] for start, end in offsets.tolist()]
    assert "the" in covered and not any(piece != piece.strip() for piece in covered)
    assert tokenizer.token(ids[covered.index("the")]) == "the"


def test_a_model_moves_between_the_two_kinds_of_vocabulary(published: Path):
    bpe = read_vocabulary(str(published))
    ids = bpe.ids
    to_wordpiece = dict(zip(WORDPIECE.tokens, old_pieces(bpe, WORDPIECE), strict=True))
    assert to_wordpiece["the"] == [ids["Ġthe"]]
    assert to_wordpiece["##an"] == [ids["an"]]
    assert to_wordpiece["an"] == [ids["Ġa"], ids["n"]]
    assert to_wordpiece["."] == [ids["."]]
    assert to_wordpiece["가"] == [ids["Ġê°Ģ"]]
    assert to_wordpiece["[MASK]"] == [ids["[MASK]"]]
    to_bpe = dict(zip(bpe.tokens, old_pieces(WORDPIECE, bpe), strict=True))
    assert to_bpe["Ġthe"] == [WORDPIECE.ids["the"]]
    assert to_bpe["an"] == [WORDPIECE.ids["##an"]]
    assert to_bpe["Ġê°Ģ"] == [WORDPIECE.ids["가"]]
    assert to_bpe["ê°"] == []  # a part of a character
    assert to_bpe["<|endoftext|>"] == []
