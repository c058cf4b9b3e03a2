"""What a run computes, measures and writes: phases, budgets, precision, and the export."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from clozeworks.cli.main import main
from clozeworks.cli.output import byte_size
from clozeworks.model.checkpoint import read_model
from clozeworks.model.config import PretrainConfig
from clozeworks.model.encoders.bert import BertForPreTraining
from clozeworks.model.pretraining import work
from clozeworks.model.pretraining.batches import make_batches
from clozeworks.model.pretraining.data import open_instances, read_split
from clozeworks.model.pretraining.evaluate import evaluate
from clozeworks.model.pretraining.pretrain import pretrain
from clozeworks.pipeline.errors import RunError, UserError
from huggingface_hub import ModelCard
from torch._dynamo.utils import counters

from tests.fixtures.instances_fixture import write_instances
from tests.fixtures.pretrain_fixture import (
    after_updates,
    assert_same_weights,
    make_config,
    read_metrics,
    weights,
)


@pytest.fixture(scope="module")
def easy_instances(tmp_path_factory) -> str:
    sizes = {"vocab_size": 20, "rows_per_group": 150, "validation_rows": 60}
    return str(write_instances(tmp_path_factory.mktemp("easy"), **sizes))


@pytest.mark.slow
def test_a_compiled_run_has_few_graphs_and_the_same_result(instances, tmp_path, monkeypatch):
    compile_parts = BertForPreTraining.compile_parts

    def compile_without_code(model: BertForPreTraining) -> None:
        compile_parts(model, backend="eager", fullgraph=True)

    monkeypatch.setattr(BertForPreTraining, "compile_parts", compile_without_code)
    monkeypatch.setenv("CXX", sys.executable)
    torch._dynamo.reset()
    for choice in (True, False):
        pretrain(
            make_config(dropout=0.0, micro_batch_size=5, compile=choice),
            [instances],
            tmp_path / str(choice),
        )
    # Few for each of embeddings, layers and head: with a mask and without, and of a single row.
    assert counters["stats"]["unique_graphs"] <= 8
    assert_same_weights(tmp_path / "True", tmp_path / "False", atol=1e-5)
    pretrain(make_config(steps=1, compile=True), [instances], tmp_path / "dropout")


def test_compiling_without_a_compiler_is_refused(instances, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", str(tmp_path / "c++"))
    with pytest.raises(UserError, match=r"`compile` needs a C\+\+ compiler; install g\+\+"):
        pretrain(make_config(steps=1, compile=True), [instances], tmp_path / "run")
    assert pretrain(make_config(steps=1), [instances], tmp_path / "run")["status"] == "finished"


@pytest.mark.slow
def test_bf16_is_close_to_fp32(instances, tmp_path):
    summaries = {}
    for precision in ("bf16", "fp32"):
        config = make_config(precision=precision, dropout=0.0)
        summaries[precision] = pretrain(config, [instances], tmp_path / precision)
    assert summaries["bf16"]["final"]["loss"] == pytest.approx(
        summaries["fp32"]["final"]["loss"], rel=0.01
    )
    assert {weight.dtype for weight in weights(tmp_path / "bf16").values()} == {torch.float32}
    one, two = weights(tmp_path / "bf16"), weights(tmp_path / "fp32")
    assert not torch.equal(one["bert.pooler.dense.weight"], two["bert.pooler.dense.weight"])


@pytest.mark.parametrize("in_training", [True, False])
def test_a_batch_that_does_not_fit_says_what_to_lower(
    instances, tmp_path, monkeypatch, in_training
):
    def full(model: BertForPreTraining, *_: object) -> None:
        if model.training == in_training:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return sums(model, *_)

    sums: Any = BertForPreTraining.sums
    monkeypatch.setattr(BertForPreTraining, "sums", full)
    with pytest.raises(RunError, match="this device; lower `micro_batch_size`"):
        pretrain(make_config(), [instances], tmp_path)


@pytest.mark.slow
def test_each_phase_is_evaluated_on_its_own_rows(instances, tmp_path, monkeypatch):
    longer = str(write_instances(tmp_path / "longer", max_length=40, seed=5, validation_rows=9))
    seen: list[tuple[int, int]] = []
    original: Any = work.PretrainWork.evaluate_phase

    def watch(updates: Any, phase: int) -> Any:
        seen.append((updates.step, phase))
        values = original(updates, phase)
        if phase == 0:  # what is best on its rows says nothing of the others
            updates.state.best |= {"loss": 0.0}
        return values

    monkeypatch.setattr(work.PretrainWork, "evaluate_phase", watch)
    config = make_config(evaluate_every=3, phase_shares=(0.5, 0.5))
    summary = pretrain(config, [instances, longer], tmp_path / "run")
    # The first is on the rows of the last, so that before and after compare.
    assert seen == [(0, 1), (3, 0), (6, 0), (9, 1), (12, 1)]
    # The best is one of the last phase, whatever the losses on other rows were.
    losses = {int(row["step"]): float(row["mlm_loss"]) for row in read_metrics(tmp_path / "run")
              if row["split"] == "validation"}  # fmt: skip
    best = summary["best"]
    assert best is not None and best["step"] in (9, 12)
    assert best["mlm_loss"] == losses[int(best["step"])]
    measured = evaluate(tmp_path / "run", longer, "validation", "cpu")
    assert measured["mlm_loss"] == pytest.approx(summary["final"]["mlm_loss"], rel=1e-5)


@pytest.mark.slow
def test_it_learns(easy_instances, tmp_path):
    config = make_config(steps=160, evaluate_every=80, checkpoint_every=100, dropout=0.0)
    live = []
    summary = pretrain(config, [easy_instances], tmp_path, after_updates(live.append))
    assert summary["final"]["mlm_loss"] < 0.8 * summary["initial"]["mlm_loss"]
    assert summary["best"] is not None and summary["best"]["step"] == 160
    assert summary["rows"] == 160 * 12 < summary["tokens"] / 5
    expected = {
        "step", "steps", "mlm_loss", "nsp_loss", "mlm_accuracy", "nsp_accuracy", "learning_rate",
    }  # fmt: skip
    assert expected <= live[-1].keys() and live[-1]["tokens_per_second"] > 0
    rows = read_metrics(tmp_path)
    assert [int(row["step"]) for row in rows if row["split"] == "validation"] == [0, 80, 160]
    assert list((tmp_path / "logs").glob("events*"))


def test_each_line_of_the_metrics_can_be_read_at_once(instances, tmp_path):
    seen, measured = [], []

    def look(numbers: dict) -> None:
        if "stage" in numbers:
            measured.append(numbers["step"])
            return
        assert "loss" not in numbers  # it would be the sum of two without saying so
        seen.append([int(row["step"]) for row in read_metrics(tmp_path) if row["split"] == "train"])

    pretrain(make_config(evaluate_every=100, checkpoint_every=100), [instances], tmp_path, look)
    assert measured == [0, 0]  # a batch before and after
    assert seen == [list(range(1, step + 1)) for step in range(1, 13)]


@pytest.mark.slow
def test_the_run_is_a_hugging_face_model(instances, tmp_path):
    pretrain(make_config(), [instances], tmp_path)
    loaded: Any = transformers.BertForPreTraining.from_pretrained(
        tmp_path, output_loading_info=True
    )
    peer, report = loaded
    assert not report["missing_keys"] and not report["unexpected_keys"]
    rows = read_split(open_instances(instances, "validation"))
    (batch,) = make_batches(rows, len(rows))
    assert batch.attention_mask_BL is not None and batch.token_index_T is not None
    arguments = {
        "token_type_ids": batch.token_type_ids,
        "attention_mask": batch.attention_mask_BL.long(),
    }
    ours = read_model(tmp_path).eval()
    with torch.no_grad():
        logits = ours.mlm_logits(ours.encoder(*batch[:4]), batch.token_index_T)
        theirs = peer.eval()(batch.input_ids, **arguments)
    expected = theirs.prediction_logits.flatten(0, 1)[batch.token_index_T]
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer("w9 [MASK]")["input_ids"] == [2, 9, 4, 3]
    masked = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
    bare = transformers.AutoModel.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        again = masked(batch.input_ids, **arguments).logits
        hidden = bare(batch.input_ids, **arguments).last_hidden_state
        torch.testing.assert_close(
            ours.encoder(*batch[:4])[batch.attention_mask_BL], hidden[batch.attention_mask_BL]
        )
    torch.testing.assert_close(again, theirs.prediction_logits, rtol=0, atol=1e-5)


def test_the_model_card_states_data_recipe_and_figures(instances, tmp_path):
    summary = pretrain(
        make_config(steps=2, dynamic_masking="token"), [instances, instances], tmp_path
    )
    card = ModelCard.load(tmp_path / "README.md")
    named = ("library_name", "pipeline_tag", "tags", "license", "language", "datasets")
    metadata = {name: value for name, value in card.data.to_dict().items() if name in named}
    assert metadata == {
        "library_name": "transformers",
        "pipeline_tag": "fill-mask",
        "tags": ["bert"],
    }
    lines = card.text.splitlines()
    rows = f"{open_instances(instances).num_rows} of at most"
    assert any(line.startswith(f"| rows | {rows} ") and f"then {rows}" in line for line in lines)
    assert f"| parameters | {summary['parameters']:,} |" in lines
    assert f"| tokens seen | {summary['tokens']:,} |" in lines
    # Few held-out rows make no figures; test_card.py has the card of enough.
    assert any(line.startswith("| rows | too little to judge: ") for line in lines)


def test_an_output_that_cannot_be_made_is_named(instances, tmp_path):
    (tmp_path / "file").write_text("")
    for output in (tmp_path / "file", tmp_path / "file" / "run", Path("/proc/nowhere")):
        with pytest.raises(UserError, match=r"is a file, but|Cannot write to"):
            pretrain(make_config(steps=1), [instances], output)
    assert (tmp_path / "file").read_text() == ""


def test_a_loss_that_is_not_finite_names_shard_and_rows(instances, tmp_path):
    config = make_config(warmup_steps=0)
    object.__setattr__(config, "learning_rate", 9e8)  # no rate that is taken overflows at once
    with pytest.raises(
        UserError,
        match=r"not finite at step \d+, on a batch of the rows train-0000\d-of-\d+.parquet row \d+",
    ):
        pretrain(config, [instances], tmp_path)
    # The last update's loss was that of the weights before.
    last = make_config(steps=1, warmup_steps=0)
    object.__setattr__(last, "learning_rate", 9e8)
    with pytest.raises(UserError, match="held-out rows is not finite after step 1"):
        pretrain(last, [instances], tmp_path, overwrite=True)
    assert not list(tmp_path.glob("summary.json")) + list(tmp_path.glob("checkpoints/*"))


def test_a_gpu_that_is_not_there_is_named(instances, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="`device` is cuda"):
        pretrain(PretrainConfig(device="cuda"), [instances], "nowhere")


@pytest.mark.slow
def test_a_dry_run_says_what_the_run_then_is(instances, tmp_path, capsys):
    output = tmp_path / "run"
    options = ["--model", "tiny", "--batch-size", "8", "--steps", "9", "--device", "cpu"]
    args = ["pretrain", instances, "--output", str(output), *options]
    main([*args, "--dry-run"])
    table = " ".join(capsys.readouterr().out.split())
    assert list(tmp_path.iterdir()) == []
    main(args)
    summary = json.loads((output / "summary.json").read_text())
    parameters = f"{summary['parameters']:,}"
    assert f"state new parameters {parameters} steps 9, 8 rows each, over all ranks" in table
    assert "epochs 0.878 of" in table  # 82 rows
    (num_tokens,) = re.findall(r"tokens ([\d,]+)", table)
    assert int(num_tokens.replace(",", "")) == pytest.approx(summary["tokens"], rel=0.1)
    # The model at the end, and the one in the last checkpoint with Adam's two averages.
    assert f"to write about {byte_size(16 * summary['parameters'])}" in table
    main([*args, "--dry-run"])
    assert "already finished" in capsys.readouterr().out
    (output / "summary.json").unlink()
    main([*args, "--dry-run"])
    assert "unfinished, would resume" in capsys.readouterr().out
    phases = [instances] * 3 + ["--phase-shares", "0.5,0.3,0.2", "--mask-rate", "0.3/0.3,0.1/0.05"]
    main(["pretrain", *phases, "--output", str(output), *options, "--dry-run", "--overwrite"])
    table = " ".join(capsys.readouterr().out.split())
    for number, steps, masks in ((1, 4, "0.3 phase"), (2, 3, "0.3 to 0.1"), (3, 2, "0.05 tokens")):
        assert f"phase {number} {steps} steps, rows of up to 24 tokens, epochs" in table
        assert f"masks {masks}" in table
    by_hours = ["--model", "tiny", "--hours", "1", "--dry-run", "--overwrite"]
    main(["pretrain", instances, "--output", str(output), *by_hours])
    assert "hours 1, 256 rows a step" in " ".join(capsys.readouterr().out.split())
