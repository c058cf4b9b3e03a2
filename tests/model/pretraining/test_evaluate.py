"""Evaluation and mask filling, against transformers on the same rows."""

import json
import math
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
import transformers
from clozeworks.cli.main import main
from clozeworks.model.checkpoint import ModelFiles, read_model, save_model
from clozeworks.model.encoders.bert import BertForPreTraining
from clozeworks.model.encoders.encoder import initialise
from clozeworks.model.pretraining.evaluate import evaluate
from clozeworks.model.tokenizer import tokenizer_files
from clozeworks.pipeline.errors import RunError, UserError
from clozeworks.pipeline.vocabulary.files import read_vocabulary

from tests.fixtures.checkpoint_fixture import fill
from tests.fixtures.instances_fixture import write_instances
from tests.fixtures.manifest_fixture import editable
from tests.fixtures.parity_fixture import SMALL_BERT


@pytest.fixture(scope="module")
def instances(tmp_path_factory) -> str:
    return str(write_instances(tmp_path_factory.mktemp("instances"), validation_rows=9))


@pytest.fixture(scope="module")
def run(instances, tmp_path_factory):
    config = SMALL_BERT
    model = BertForPreTraining(config)
    initialise(model, config, torch.Generator().manual_seed(0))
    with torch.no_grad():  # larger than at first, so that guesses differ
        for parameter in model.parameters():
            parameter.mul_(3)
    path = tmp_path_factory.mktemp("run")
    save_model(path, ModelFiles(model.state_dict(), config.to_hf(), tokenizer_files(instances)))
    return path


def entropy(shares: Sequence[float]) -> float:
    return -sum(share * math.log(share) for share in shares)


def test_metrics_equal_those_of_transformers_row_by_row(run, instances):
    peer = transformers.BertForPreTraining.from_pretrained(run).eval()
    rows = pq.read_table(f"{instances}/validation-00000-of-00001.parquet").to_pylist()
    log_losses, right, nsp_losses, nsp_right = [], 0, [], 0
    for row in rows:
        ids = torch.tensor([row["input_ids"]])
        types = (torch.arange(ids.shape[1]) >= row["segment_b_start"]).long()[None]
        with torch.no_grad():
            output = peer(ids, token_type_ids=types)
        for position, token in zip(row["masked_lm_positions"], row["masked_lm_ids"], strict=True):
            log_losses.append(-output.prediction_logits[0, position].log_softmax(-1)[token].item())
            right += int(output.prediction_logits[0, position].argmax() == token)
        label = row["next_sentence_label"]
        nsp_losses.append(-output.seq_relationship_logits[0].log_softmax(-1)[label].item())
        nsp_right += int(output.seq_relationship_logits[0].argmax() == label)
    mlm_loss, nsp_loss = sum(log_losses) / len(log_losses), sum(nsp_losses) / len(rows)
    tokens = Counter(token for row in rows for token in row["masked_lm_ids"])
    labels = Counter(row["next_sentence_label"] for row in rows)
    shares = [count / tokens.total() for count in tokens.values()]
    label_shares = [count / labels.total() for count in labels.values()]
    figures = {
        "baseline_mlm_loss": entropy(shares),
        "baseline_mlm_accuracy": max(shares),
        "baseline_perplexity": math.exp(entropy(shares)),
        "baseline_nsp_loss": entropy(label_shares),
        "baseline_nsp_accuracy": max(label_shares),
        **{"loss": mlm_loss + nsp_loss, "mlm_loss": mlm_loss, "nsp_loss": nsp_loss},
        **{"mlm_accuracy": right / len(log_losses), "nsp_accuracy": nsp_right / len(rows)},
        **{"perplexity": math.exp(mlm_loss), "rows": len(rows)},
    }
    assert evaluate(run, instances) == pytest.approx(figures, abs=1e-5, rel=1e-5)


def test_without_pairs_no_next_sentence_is_measured(run, instances, tmp_path):
    shutil.copytree(instances, tmp_path / "single")
    manifest = editable(tmp_path / "single" / "manifest.json")
    manifest["config"]["pairing"] = "none"
    (tmp_path / "single" / "manifest.json").write_text(json.dumps(manifest))
    measured, paired = evaluate(run, str(tmp_path / "single")), evaluate(run, instances)
    of_masks = {"mlm_loss", "mlm_accuracy", "perplexity"}
    constant = {f"baseline_{name}" for name in of_masks}
    assert measured.keys() == {"rows", "loss", *of_masks, *constant}
    assert measured["mlm_loss"] == paired["mlm_loss"] == measured["loss"]


def test_other_vocabularies_and_longer_rows_are_refused(run, instances, tmp_path):
    other = write_instances(tmp_path / "other", vocab_size=61)
    with pytest.raises(UserError, match="different vocabulary from"):
        evaluate(run, str(other))
    long = write_instances(tmp_path / "long", max_length=600)
    with pytest.raises(UserError, match=r"up to 600 tokens, but the model in .* has 512 positions"):
        evaluate(run, str(long))


def test_fill_gives_the_guesses_of_transformers(run):
    text = "w7 [MASK] w9 w10 [MASK]"
    found: Any = transformers.pipeline("fill-mask", model=str(run), top_k=3)(text)
    theirs = [[(guess["token_str"], guess["score"]) for guess in guesses] for guesses in found]
    for mine, other in zip(fill(run, text, top=3), theirs, strict=True):
        assert [guess.token for guess in mine] == [token for token, _ in other]
        assert [guess.probability for guess in mine] == pytest.approx(
            [score for _, score in other], abs=1e-5
        )


def test_a_left_to_right_model_fills_a_mask_from_what_precedes_it(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    config = json.loads((run / "config.json").read_text()) | {"is_decoder": True}
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    model = read_model(tmp_path / "run").eval()
    ids = torch.tensor([read_vocabulary(str(run)).tokenizer().encode("w7 [MASK] w9").ids])
    with torch.no_grad():
        expected = model.mlm_logits(model.encoder(ids[:, :2]), torch.tensor([1])).softmax(-1).max()
    assert fill(tmp_path / "run", "w7 [MASK] w9", top=1)[0][0].probability == pytest.approx(
        float(expected)
    )


def test_fill_needs_a_mask_and_an_embedding_for_each_token(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "tokenizer.json").unlink()
    words = (run / "vocab.txt").read_text()
    (tmp_path / "run" / "vocab.txt").write_text(words + "more\n")
    with pytest.raises(UserError, match=r"has 61 tokens, but its model has 60; use another"):
        fill(tmp_path / "run", "w7 [MASK]")
    (tmp_path / "run" / "tokenizer.json").write_text(
        (run / "tokenizer.json").read_text().replace("[MASK]", "[mask]")
    )
    with pytest.raises(UserError, match=r"tokenizer\.json has no mask token"):
        fill(tmp_path / "run", "w7 [MASK]")
    with pytest.raises(UserError, match="The text has no"):
        fill(run, "w7")


def test_options_for_the_other_kind_of_model_are_refused(instances, tmp_path, capsys):
    (tmp_path / "task.json").write_text("{}")
    with pytest.raises(SystemExit):
        main(["evaluate", str(tmp_path), instances, "--batch-size=3"])
    assert "Error: --batch-size is for pre-trained" in capsys.readouterr().err


def test_fill_needs_a_vocabulary_in_either_form(run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    (copy / "tokenizer.json").unlink()
    assert fill(copy, "w7 [MASK]") == fill(run, "w7 [MASK]")
    (copy / "vocab.txt").unlink()
    with pytest.raises(UserError, match="has no vocabulary"):
        fill(copy, "w7 [MASK]")


def test_the_model_of_a_run_that_is_not_finished_is_called_so(run, instances, tmp_path, capsys):
    copy = shutil.copytree(run, tmp_path / "copy")
    (copy / "run.json").write_text("{}")
    for is_finished in (False, True):
        fill(copy, "w7 [MASK]")
        evaluate(copy, instances, device="cpu")
        notice = f"The run in {copy} is not finished: this is the model of its last checkpoint."
        assert capsys.readouterr().err.count(notice) == (0 if is_finished else 2)
        (copy / "summary.json").write_text("{}")


def test_fill_names_no_more_tokens_than_there_are(run):
    (guesses,) = fill(run, "w7 [MASK]", top=1000)
    assert len(guesses) == 60 and sum(guess.probability for guess in guesses) == pytest.approx(1)


def test_fill_and_evaluate_print_json(run, instances, capsys: pytest.CaptureFixture[str]):
    main(["fill", str(run), "w7 [MASK]", "--json"])
    assert json.loads(capsys.readouterr().out) == [
        [guess._asdict() for guess in fill(run, "w7 [MASK]")[0]]
    ]
    main(["evaluate", str(run), instances, "--device", "cpu", "--json"])
    assert json.loads(capsys.readouterr().out) == {
        "split": "validation",
        **evaluate(run, instances),
    }
    main(["evaluate", str(run), instances, "--device", "cpu"])
    printed = capsys.readouterr()
    assert re.search(r"split +validation", printed.out)
    assert re.search(r"mlm accuracy +[\d.]+ \([\d.]+ by token frequencies\)", printed.out)
    assert re.search(r"nsp accuracy +[\d.]+ \([\d.]+ by a constant answer\)", printed.out)


def test_fill_refuses_a_fine_tuned_model(run, tmp_path: Path):
    model = tmp_path / "model"
    shutil.copytree(run, model)
    (model / "task.json").write_text("{}")
    line = f"{model} is a fine-tuned model, without the masked-LM head: use `clozeworks predict`."
    with pytest.raises(UserError, match=f"^{re.escape(line)}$"):
        fill(model, "[MASK]")


def test_fill_names_what_is_wrong(run):
    with pytest.raises(UserError, match=r"no \[MASK\]"):
        fill(run, "w7 w8")
    with pytest.raises(UserError, match="603 tokens, but the model reads at most 512"):
        fill(run, "w7 " * 600 + "[MASK]")


def test_a_batch_that_does_not_fit_says_what_to_lower(run, instances, monkeypatch):
    whole = evaluate(run, instances)
    assert evaluate(run, instances, batch_size=2) == pytest.approx(whole, rel=1e-5)

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(BertForPreTraining, "sums", full)
    with pytest.raises(RunError, match="memory of this device; lower `batch_size`"):
        evaluate(run, instances)
