"""Moving a model to another vocabulary: what each embedding comes from, and what stays."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from clozeworks.model.checkpoint import read_model
from clozeworks.model.config import PretrainConfig
from clozeworks.model.encoders.bert import BertForPreTraining
from clozeworks.model.encoders.encoder import initialise
from clozeworks.model.encoders.heads import PretrainModel
from clozeworks.model.pretraining.evaluate import evaluate
from clozeworks.model.pretraining.new_vocabulary import move_to_vocabulary, old_pieces
from clozeworks.model.pretraining.pretrain import pretrain
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.vocabulary.files import read_vocabulary
from clozeworks.pipeline.vocabulary.normalization import Normalization
from clozeworks.pipeline.vocabulary.vocabulary import SPECIAL_TOKENS, Vocabulary
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from tests.fixtures.instances_fixture import write_instances
from tests.fixtures.manifest_fixture import editable
from tests.fixtures.parity_fixture import SMALL_BERT

UNCASED, CASED = (
    Normalization(lowercase=True, strip_accents=True),
    Normalization(lowercase=False, strip_accents=False),
)
TINY: dict[str, Any] = {"num_layers": 1, "hidden_size": 32, "num_heads": 2}
SHORT: dict[str, Any] = {
    "batch_size": 20, "learning_rate": 5e-3, "dropout": 0.0, "device": "cpu", "precision": "fp32",
}  # fmt: skip


def vocabulary(*tokens: str, normalization: Normalization = UNCASED) -> Vocabulary:
    return Vocabulary((*SPECIAL_TOKENS, *tokens), normalization)


def random_model(size: int) -> BertForPreTraining:
    config = replace(SMALL_BERT, vocab_size=size)
    model = BertForPreTraining(config).eval()
    initialise(model, config, torch.Generator().manual_seed(3))
    torch.nn.init.normal_(model.cls.get_parameter("predictions.bias"))
    return model


def test_each_new_token_is_cut_into_old_pieces():
    old = vocabulary(
        "un", "##believ", "##able", "able", "cafe", "seoul", "##s", "서울", "##은", "a", "##a"
    )
    words = ["able", "unable", "unbelievable", "##believable", "Café", "Seoul", "##able"]
    words += ["서울은", "xyz", "##un", "[unused1]", "아"]
    new = vocabulary(*words, normalization=CASED)
    found = [[old.tokens[piece] for piece in pieces] for pieces in old_pieces(old, new)]
    assert found == [
        *([token] for token in SPECIAL_TOKENS),
        ["able"], ["un", "##able"], ["un", "##believ", "##able"], ["##believ", "##able"],
        ["cafe"], ["seoul"], ["##able"], [], [], [], [], [],
    ]  # fmt: skip
    # Lower-casing with BERT's stripping of accents decomposes Hangul, so such a vocabulary has no
    # syllables to match.
    keeps = vocabulary(
        "서울", "##은", normalization=Normalization(lowercase=True, strip_accents=False)
    )
    assert old_pieces(keeps, vocabulary("서울은"))[-1] == [5, 6]


@pytest.mark.parametrize("form", ["metaspace", "prepend", "gemma", "bytes", "lower-cased pieces"])
def test_a_part_of_a_word_is_spelt_without_a_space_before_it(form: str, tmp_path: Path):
    """The pieces of a tokenizer that only `tokenizers` reads."""
    space = "Ġ" if form == "bytes" else "▁"
    words = [f"{space}believe", f"{space}a", "able", "believ", "s", "."]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet()) if form == "bytes" else [space, "a"]
    tokens = list(dict.fromkeys([*SPECIAL_TOKENS, *words, *alphabet]))
    ids = {token: i for i, token in enumerate(tokens)}
    if form == "lower-cased pieces":
        words = ["believe", "a", "##able", "##believ", "##s", "."]
        ids = {token: i for i, token in enumerate((*SPECIAL_TOKENS, *words))}
        tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.Lowercase()
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    elif form == "gemma":
        tokenizer = Tokenizer(models.BPE(ids, [], ignore_merges=True, unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
    elif form == "bytes":
        tokenizer = Tokenizer(models.BPE(ids, [], ignore_merges=True))
        steps = [
            pre_tokenizers.Split(" ", "merged_with_next"),
            pre_tokenizers.ByteLevel(True, True, False),
        ]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    else:
        scores = [(token, -1.0 - (token == space)) for token in ids]
        tokenizer = Tokenizer(models.Unigram(scores, unk_id=1, byte_fallback=False))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        if form == "prepend":
            tokenizer.normalizer = normalizers.Prepend("▁")
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    old = read_vocabulary(str(tmp_path))
    assert old.is_foreign
    new = vocabulary("believe", "##able", "##s", ".", "##believ", "##zz")
    found = [[old.tokens[piece] for piece in pieces] for pieces in old_pieces(old, new)[5:]]
    expected = [[words[0]], [words[2]], [words[4]], ["."], [words[3]], []]
    if form == "bytes":
        expected[-1] = ["z", "z"]
    assert found == expected


def test_embeddings_are_copied_averaged_or_the_mean_of_all_and_the_rest_stays(capsys):
    old, new = vocabulary("a", "##b", "c"), vocabulary("c", "ab", "z", "a")
    model = random_model(len(old))
    moved = move_to_vocabulary(model, old, new)
    said = "7 embeddings copied, 1 averaged over a token's old pieces, 1 over all tokens"
    assert said in capsys.readouterr().err
    before, after = model.state_dict(), moved.state_dict()
    for name in model.vocabulary_weights:
        special, (c, ab, z, a) = after[name][:5], after[name][5:]
        assert torch.equal(special, before[name][:5])
        assert torch.equal(torch.stack([c, a]), before[name][[7, 5]])
        torch.testing.assert_close(ab, before[name][[5, 6]].mean(0))
        torch.testing.assert_close(z, before[name][5:].mean(0))
    assert all(
        torch.equal(after[name], weight)
        for name, weight in before.items()
        if name not in model.vocabulary_weights
    )


def test_the_same_tokens_in_another_order_give_the_same_logits():
    old, new = vocabulary(*"abcdef"), vocabulary(*"fbdace")
    model = random_model(len(old))
    moved = move_to_vocabulary(model, old, new)
    ids = torch.tensor([[2, 5, 6, 7, 10, 3]])
    new_ids = torch.tensor([[new.ids[old.tokens[token]] for token in ids[0]]])
    order = torch.tensor([new.ids[token] for token in old.tokens])

    def logits(of: PretrainModel, tokens: torch.Tensor) -> torch.Tensor:
        hidden = of.encoder(tokens, torch.zeros_like(tokens), None, None)
        return of.mlm_logits(hidden, torch.arange(6))

    with torch.no_grad():
        torch.testing.assert_close(logits(moved.eval(), new_ids)[:, order], logits(model, ids))


@pytest.mark.slow
def test_a_moved_model_starts_far_below_random_weights(tmp_path, capsys):
    sizes: dict[str, Any] = {"rows_per_group": 150, "validation_rows": 60}
    first = str(write_instances(tmp_path / "old", vocab_size=20, **sizes))
    other = str(write_instances(tmp_path / "new", vocab_size=22, seed=1, **sizes))
    config = PretrainConfig(steps=300, **TINY, **SHORT)
    trained = pretrain(config, [first], tmp_path / "model")
    start = PretrainConfig(
        steps=2, checkpoint=str(tmp_path / "model"), vocabulary_from="instances", **SHORT
    )
    moved = pretrain(start, [other], tmp_path / "moved")
    notice = "Moved the model from a vocabulary of 20 tokens to one of 22: 20 embeddings copied, "
    notice += "0 averaged over a token's old pieces, 2 over all tokens.\n"
    assert notice in capsys.readouterr().err
    random = trained["initial"]["mlm_loss"]
    assert trained["final"]["mlm_loss"] < 0.4 * random
    assert moved["initial"]["mlm_loss"] < 0.6 * random
    assert read_model(tmp_path / "moved").config.vocab_size == 22
    assert evaluate(tmp_path / "moved", other, device="cpu")["mlm_loss"] == pytest.approx(
        moved["final"]["mlm_loss"]
    )
    # The finished run is found without the model that it started from.
    assert pretrain(start, [other], tmp_path / "moved")["status"] == "already finished"


@pytest.mark.slow
def test_another_vocabulary_of_the_same_size_has_no_averages_yet(tmp_path):
    first = str(write_instances(tmp_path / "old", vocab_size=40))
    other = write_instances(tmp_path / "new", vocab_size=40)
    for name in ("vocab.txt", "tokenizer.json"):
        content = (other / name).read_text()
        (other / name).write_text(re.sub(r"\bw(\d+)", r"v\1", content))
    manifest = editable(other / "manifest.json")
    manifest["tokenizer"]["fingerprint"] = read_vocabulary(str(other)).fingerprint
    (other / "manifest.json").write_text(json.dumps(manifest))
    options: dict[str, Any] = {**SHORT, "steps": 2, "schedule": "constant-with-decay"}
    steady = PretrainConfig(**TINY, **options, archive_every=1)
    pretrain(steady, [first], tmp_path / "model")
    archived = tmp_path / "model" / "archive" / "step-1"
    moved = PretrainConfig(**options, checkpoint=str(archived), vocabulary_from="instances")
    pretrain(moved, [str(other)], tmp_path / "beside")
    shutil.rmtree(archived / "training_state")
    pretrain(moved, [str(other)], tmp_path / "alone")
    beside, alone = [tmp_path / name / "model.safetensors" for name in ("beside", "alone")]
    assert beside.read_bytes() == alone.read_bytes()


def test_a_vocabulary_is_moved_only_if_asked_for(tmp_path):
    first = str(write_instances(tmp_path / "old", vocab_size=40))
    other = str(write_instances(tmp_path / "new", vocab_size=44))
    pretrain(PretrainConfig(steps=1, **TINY, **SHORT), [first], tmp_path / "model")
    with pytest.raises(UserError, match="or pre-train with `vocabulary_from` instances"):
        pretrain(
            PretrainConfig(steps=1, checkpoint=str(tmp_path / "model"), **SHORT),
            [other],
            tmp_path / "out",
        )
    with pytest.raises(UserError, match="`vocabulary_from` is instances, but needs `checkpoint`"):
        PretrainConfig(vocabulary_from="instances")
