"""Parity of ModernBERT with transformers: forward, losses and gradients, in every layout."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from clozeworks.model.encoders.attention import PaddedRows
from clozeworks.model.encoders.bert_config import ModelConfig
from clozeworks.model.encoders.catalogue import CONFIGS, make_encoder, make_pretrain_model, read_hf
from clozeworks.model.encoders.encoder import initialise, real_tokens
from clozeworks.model.encoders.heads import PretrainBatch
from clozeworks.model.encoders.modernbert import ModernBertForMaskedLM, Rotation
from clozeworks.model.encoders.modernbert_config import ModernBertConfig
from clozeworks.model.tasks.batches import TaskBatch
from clozeworks.model.tasks.classify import SequenceClassifier
from clozeworks.model.tasks.ner import TokenClassifier
from clozeworks.model.tasks.squad import SpanClassifier
from clozeworks.model.tasks.task import TaskModel
from clozeworks.model.training.device import update_flops
from clozeworks.pipeline.errors import UserError
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tests.fixtures.parity_fixture import check_learning

pytestmark = pytest.mark.usefixtures("packed_on_cpu")


def vocabulary_fields(size: int) -> dict[str, Any]:
    return ModernBertConfig.vocabulary_fields(size, pad_id=0, cls_id=2, sep_id=3)


SHAPE = ModernBertConfig(
    hidden_size=48, num_hidden_layers=5, num_attention_heads=4, intermediate_size=40,
    max_position_embeddings=512, local_attention=16, global_rope_theta=30_000.0,
    local_rope_theta=5_000.0, **vocabulary_fields(97),
)  # fmt: skip
SHORT = [[7, 7, 7], [3, 9, 8, 1]]
"""Rows that a window of 8 tokens on either side covers, or nearly."""
LONGER = [[40, 40], [3, 60, 11, 1], [33]]
LONG = [[300, 300], [150, 3, 421, 1], [257]]
"""Rows long enough to be cut into blocks, the last one a token longer than two blocks."""


def make_models(
    shape: ModernBertConfig = SHAPE, attention: str = "eager"
) -> tuple[ModernBertForMaskedLM, Any]:
    ours = make_pretrain_model(shape)
    assert isinstance(ours, ModernBertForMaskedLM)
    initialise(ours, shape, torch.Generator().manual_seed(1))
    values: dict[str, Any] = shape.to_hf() | {"attn_implementation": attention}
    peer: Any = transformers.ModernBertForMaskedLM(transformers.ModernBertConfig(**values))
    weights = ours.state_dict()
    for name, weight in weights.items():
        # Biases and norms too must differ from their initial value to be compared; and weights be
        # large enough that tokens attend to some more than to others.
        if weight.ndim > 1:
            weight.mul_(4)
        weight.add_(torch.linspace(-0.05, 0.05, weight.numel()).view(weight.shape))
        assert peer.state_dict()[name].shape == weight.shape
    missing = peer.load_state_dict(weights, strict=False)
    assert missing.missing_keys == ["decoder.weight"] and not missing.unexpected_keys
    return ours.eval(), peer.eval()


def make_batch(lengths: list[int], vocab_size: int = SHAPE.vocab_size) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(sum(lengths))
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    ids = torch.randint(4, vocab_size, mask.shape, generator=generator) * mask
    is_predicted = (torch.arange(mask.numel()).view(mask.shape) % 3 == 0) & mask
    labels = torch.where(is_predicted, ids.roll(1, 0), -100)
    labels = labels.where(labels != 0, -100)
    return {"input_ids": ids, "mask": mask, "labels": labels}


def run_ours(model: ModernBertForMaskedLM, batch: dict[str, torch.Tensor], layout: str):
    """Return the mean loss, and the states (T, D) of the real tokens."""
    ids, mask = batch["input_ids"], batch["mask"]
    tokens = real_tokens(mask)
    labels = batch["labels"].reshape(-1)
    types = torch.zeros_like(ids)
    index = (labels != -100).nonzero().squeeze(1)
    if layout == "packed":
        starts = torch.cat([torch.zeros(1), mask.sum(1).cumsum(0)]).int()
        positions = torch.arange(mask.shape[1]).expand(mask.shape)[mask]
        packed_index = torch.searchsorted(tokens, index)
        arguments = (ids[mask], types[mask], None, None, packed_index, labels[index], None)
        sums = model.sums(PretrainBatch(*arguments, positions, starts, mask.shape[1]))
        states = model.model.packed_states(ids[mask], types[mask], positions, starts, mask.shape[1])
        return sums.mlm_loss / len(index), states
    token_index = tokens if layout == "unpadded" else None
    rows = (ids, types, mask, token_index)
    sums = model.sums(PretrainBatch(*rows, index, labels[index], None))
    states = model.model(*rows)
    return sums.mlm_loss / len(index), states.reshape(-1, states.shape[-1])[tokens]


@pytest.mark.parametrize("lengths", [*SHORT, *LONGER, *LONG])
@pytest.mark.parametrize("layout", ["padded", "unpadded", "packed"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_equals_transformers(lengths, layout, attention):
    ours, peer = make_models(attention=attention)
    batch = make_batch(lengths)
    theirs = peer(
        input_ids=batch["input_ids"], attention_mask=batch["mask"].long(), labels=batch["labels"]
    )
    loss, states = run_ours(ours, batch, layout)
    every = torch.arange(len(states))
    expected = theirs.logits[batch["mask"]]
    torch.testing.assert_close(ours.mlm_logits(states, every), expected, rtol=0, atol=1e-5)
    check_learning(ours, loss, peer, theirs.loss)


def test_a_window_of_one_token_equals_transformers():
    ours, peer = make_models(replace(SHAPE, local_attention=1))
    batch = make_batch(LONG[0])
    theirs = peer(input_ids=batch["input_ids"], attention_mask=batch["mask"].long())
    _, states = run_ours(ours, batch, "padded")
    logits = ours.mlm_logits(states, torch.arange(len(states)))
    torch.testing.assert_close(logits, theirs.logits[batch["mask"]], rtol=0, atol=1e-5)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("make", [SequenceClassifier, TokenClassifier, SpanClassifier])
def test_heads_of_tasks_equal_transformers(make, pooling):
    shape = replace(SHAPE, classifier_pooling=pooling)
    arguments = () if make is SpanClassifier else (2,)
    ours: TaskModel = make(shape, *arguments)
    initialise(ours, shape, torch.Generator().manual_seed(2))
    for weight in ours.state_dict().values():
        weight.mul_(3).add_(torch.linspace(-0.1, 0.1, weight.numel()).view(weight.shape))
    name = f"ModernBert{ours.hf_name}"
    values: dict[str, Any] = shape.to_hf(name) | {"num_labels": 2}
    config = transformers.ModernBertConfig(**values)
    peer: Any = getattr(transformers, name)(config).eval()
    peer.load_state_dict(ours.state_dict())

    lengths = [21, 60, 3, 44]
    batch = make_batch(lengths)
    ids, mask = batch["input_ids"], batch["mask"]
    rows = TaskBatch(ids, torch.zeros_like(ids), mask, real_tokens(mask), target=None)
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["mask"].long()}
    output = peer(**inputs)
    if make is SpanClassifier:
        expected = torch.stack([output.start_logits, output.end_logits], -1)
    else:
        expected = output.logits
    actual = ours.eval()(rows)
    if ours.per_token:
        actual, expected = actual[batch["mask"]], expected[batch["mask"]]
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)

    weight = torch.linspace(-1, 1, actual.numel()).view(actual.shape)
    check_learning(ours, (actual * weight).mean(), peer, (expected * weight).mean())


def test_hidden_states_of_all_layers_equal_transformers():
    ours, peer = make_models()
    batch = make_batch([4, 40])
    theirs = peer.model(batch["input_ids"], attention_mask=batch["mask"], output_hidden_states=True)
    mine = ours.model.hidden_states(
        batch["input_ids"], None, batch["mask"], real_tokens(batch["mask"]), all_layers=True
    )
    assert len(mine) == len(theirs.hidden_states) == 6
    for actual, expected in zip(mine, theirs.hidden_states, strict=True):
        torch.testing.assert_close(
            actual[batch["mask"]], expected[batch["mask"]], rtol=0, atol=1e-5
        )


def test_initial_weights_are_those_of_transformers_module_by_module():
    shape = ModernBertConfig.named("tiny", initializer_range=0.02, **vocabulary_fields(3000))
    ours = make_pretrain_model(shape)
    initialise(ours, shape, torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    peer = transformers.ModernBertForMaskedLM(transformers.ModernBertConfig(**shape.to_hf()))
    theirs = peer.state_dict()
    for name, weight in ours.state_dict().items():
        if weight.ndim == 1:
            assert torch.equal(weight, theirs[name]), name
        elif "embeddings" not in name:
            # That of transformers' embeddings is its decoder's, to which they are tied.
            assert weight.std().item() == pytest.approx(theirs[name].std().item(), rel=0.03), name
            assert weight.abs().max() <= 2.0001 * weight.std() / 0.8796 * 1.05
    assert ours.state_dict()[ours.vocabulary_weights[0]].std().item() == pytest.approx(
        0.02 * 0.8796, rel=0.02
    )


def test_dropout_trains_by_products_as_the_fused_kernel_does():
    # A tiny dropout rate takes the training path on the CPU, and drops nothing.
    for lengths in ([3, 60, 11], [300, 150]):
        batch = make_batch(lengths)
        expected, _ = run_ours(make_models()[0], batch, "unpadded")
        ours, _ = make_models(SHAPE.with_dropout(1e-9))
        actual, _ = run_ours(ours.train(), batch, "unpadded")
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


def test_rows_in_bf16_on_a_cpu_have_few_lengths():
    ours, _ = make_models()
    computed: list[int] = []
    ours.model.layers[0].register_forward_hook(lambda _, args, __: computed.append(len(args[0])))
    for lengths in ([3, 60, 11], [301]):
        batch = make_batch(lengths)
        in_fp32 = run_ours(ours, batch, "unpadded")
        with torch.autocast("cpu", torch.bfloat16):
            actual = run_ours(ours, batch, "unpadded")
        torch.testing.assert_close(actual, in_fp32, rtol=0, atol=0.02)
    assert computed == [74, 74, 76, 76, 301, 301, 304, 304]


def test_a_window_sees_so_many_tokens_and_no_more():
    # One layer is enough to see how far: the second, since the first attends to whole rows.
    shape = replace(SHAPE, num_hidden_layers=2)
    ours, _ = make_models(shape)
    hidden = torch.randn(300, 48, generator=torch.Generator().manual_seed(0))
    attend = ours.model.layers[1].get_submodule("attn")
    for num_tokens in (60, 300):
        layout = PaddedRows(1, num_tokens, None, None, is_causal=False)
        rotation = Rotation.at(torch.arange(num_tokens), 12, 5000.0)
        before = attend(hidden[:num_tokens], layout, rotation)
        changed = hidden[:num_tokens].clone()
        changed[30] += 1
        differs = (attend(changed, layout, rotation) != before).any(1).nonzero().squeeze(1)
        assert differs.tolist() == list(range(22, 39))


def test_flops_are_those_of_the_forward_pass_three_times():
    # Windowed layers are computed with a mask here, so only those of whole rows compare.
    shape = replace(SHAPE, global_attn_every_n_layers=1)
    model = make_pretrain_model(shape).eval()
    ids = make_batch([9, 9, 9])["input_ids"]
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        model.mlm_logits(model.encoder(ids), torch.tensor([2, 11, 12, 20]))
    assert update_flops(shape, np.array([9, 9, 9]), 4) == 3 * counter.get_total_flops()


@pytest.mark.parametrize("length", [1, 5, 9, 10, 17, 30])
def test_pairs_within_a_window_are_counted(length):
    positions = np.arange(length)
    near = np.abs(positions[:, None] - positions) <= 8
    lengths = np.array([length, length])
    windowed = replace(SHAPE, num_hidden_layers=2).encoder_flops(lengths)
    whole = replace(SHAPE, num_hidden_layers=2, global_attn_every_n_layers=1)
    saved = 2 * (length**2 - near.sum())
    assert whole.encoder_flops(lengths) - windowed == 4 * 48 * saved


def test_named_sizes_have_the_published_numbers_of_parameters():
    # The paper states 149 and 395 million (arXiv 2412.13663, section 2.1).
    # Those of Ettin are in the names (arXiv 2507.11412).
    ettin = {"ettin-17m": 17, "ettin-32m": 32, "ettin-68m": 68}
    for size, millions in {"base": 149, "large": 395, **ettin}.items():
        shape = ModernBertConfig.named(size)
        with torch.device("meta"):
            model = make_encoder(shape)
        assert sum(p.numel() for p in model.parameters()) == shape.num_parameters()
        assert shape.num_parameters() / 1e6 == pytest.approx(millions, abs=0.5)
        assert ModernBertConfig().intermediate_size == 1152
    for size in ("tiny", "mini", "small", "medium"):
        # Layers like BERT's of the same name, in weights.
        ours = ModernBertConfig.named(size, **vocabulary_fields(97))
        bert = ModelConfig.named(size, vocab_size=97, max_position_embeddings=1)
        assert ours.num_parameters() == pytest.approx(bert.num_parameters(), rel=0.05)


@pytest.mark.parametrize(
    ("size", "sigma"),
    [("tiny", 0.049), ("mini", 0.0346), ("small", 0.0245), ("base", 0.02), ("large", 0.02)],
)
def test_narrow_encoders_begin_with_larger_weights(size, sigma):
    for kind in (ModernBertConfig, ModelConfig):
        assert kind.named(size).initializer_range == sigma
        assert kind.named(size, initializer_range=0.01).initializer_range == 0.01


def test_new_encoders_classify_by_the_mean_and_files_that_do_not_say_by_the_first_token():
    assert ModernBertConfig.named("mini").classifier_pooling == "mean"
    assert ModernBertConfig.named("mini", classifier_pooling="cls").classifier_pooling == "cls"
    values = SHAPE.to_hf()
    del values["classifier_pooling"]
    shape = read_hf(values)
    assert isinstance(shape, ModernBertConfig)
    assert shape.classifier_pooling == transformers.ModernBertConfig().classifier_pooling == "cls"


NEW_FIELDS: dict[str, Any] = {
    "global_attn_every_n_layers": 4,
    "num_hidden_layers": 6,
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 7.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 8.0},
    },
}
NEW_FORM = transformers.ModernBertConfig(**NEW_FIELDS).to_dict()
OLD_FORM = {
    "model_type": "modernbert", "num_hidden_layers": 6, "global_attn_every_n_layers": 4,
    "global_rope_theta": 7, "local_rope_theta": 8.0, "position_embedding_type": "absolute",
}  # fmt: skip


@pytest.mark.parametrize("values", [NEW_FORM, OLD_FORM])
def test_both_forms_of_config_json_are_read_and_written(values):
    shape = read_hf(values)
    assert isinstance(shape, ModernBertConfig)
    thetas: Any = {"global_rope_theta": 7.0, "local_rope_theta": 8.0}
    assert shape == ModernBertConfig(num_hidden_layers=6, global_attn_every_n_layers=4, **thetas)
    written = shape.to_hf()
    ours = {**OLD_FORM, "position_embedding_type": None}
    assert {**written, **ours} == {**written, "position_embedding_type": None}
    assert read_hf(written) == shape
    peer = transformers.ModernBertConfig(**written)
    assert peer.layer_types == NEW_FORM["layer_types"]
    assert peer.rope_parameters == NEW_FORM["rope_parameters"]


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_config_that_is_written_and_read_again_is_the_same(kind):
    every = [{"global_attn_every_n_layers": n} for n in (1, 2, 3, 5)]
    for size in CONFIGS[kind].sizes:
        for num_layers in (None, 1, 2, 3, 4):
            for changes in every if kind == "modernbert" else [{}]:
                shape = CONFIGS[kind].named(size, num_hidden_layers=num_layers, **changes)
                again = read_hf(json.loads(json.dumps(shape.to_hf())))
                assert again == shape
                assert again.to_hf() == shape.to_hf()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"norm_bias": True}, "has norm_bias True, but only False is read"),
        ({"decoder_bias": False}, "has decoder_bias False, but only True is read"),
        ({"tie_word_embeddings": False}, "has tie_word_embeddings False"),
        ({"hidden_activation": "silu"}, "`hidden_activation` is silu"),
        ({"classifier_pooling": "max"}, "`classifier_pooling` is max, but must be cls or mean"),
        (
            {"layer_types": ["full_attention", "full_attention", "sliding_attention"]},
            "fixed period",
        ),
        ({"layer_types": 5}, "layer_types: expected array"),
        ({"rope_parameters": {"full_attention": 3}}, "expected object"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "rope_type .* 'yarn'"),
        ({"num_attention_heads": 256}, "odd size"),
        ({"local_attention": 0}, "local_attention: expected int >= 1"),
        ({"pad_token_id": 60000}, "`pad_token_id` is 60000, but the vocabulary has 50368 tokens"),
    ],
)
def test_what_is_not_built_is_refused_by_name(changes, message):
    with pytest.raises(UserError, match=message):
        read_hf({"model_type": "modernbert", **changes})


def test_a_modernbert_is_never_left_to_right():
    with pytest.raises(UserError, match="cannot be left to right"):
        replace(SHAPE, is_decoder=True)
