"""Measure losses and accuracies on a held-out split: no dropout, stored masks, in order."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch

from ...pipeline.errors import UserError
from ...pipeline.instances.rows import Rows
from ...pipeline.vocabulary.vocabulary import Vocabulary
from ..checkpoint import Checkpoint
from ..config import BASELINE
from ..encoders.heads import IGNORED, PretrainBatch, PretrainModel, PretrainSums
from ..training.device import find_device, oom_as_run_error, sum_dtype, tokens_at_once, trim_memory
from ..training.graphs import Inference, make_inference
from ..training.ranks import Ranks
from .batches import make_batches
from .data import InstanceDirectory, open_instances, read_split

NUM_SUMS = 6


def evaluate(
    run: str | Path,
    instances: str,
    split: str = "validation",
    device: str = "auto",
    batch_size: int | None = None,
) -> dict[str, float]:
    """Return ``rows``, the metrics (see `metrics`) of the model in `run` on a split of `instances`,
    and those of constant answers (see `baseline`), named ``baseline_…``.

    Next-sentence prediction needs pairs, and a model with that head. `batch_size` rows are computed
    at once, by default as many as in training. Raises `UserError` if there is no model or no split,
    if their vocabularies differ, or if a batch does not fit into memory.
    """
    directory = open_instances(instances, split)
    # Before the weights are read, which takes longer.
    checkpoint = Checkpoint.open(run)
    config = checkpoint.shape
    num_positions = config.num_positions
    if directory.max_length > num_positions:
        raise UserError(
            f"{directory.path} contains rows of up to {directory.max_length} tokens, but the model "
            f"in {run} has {num_positions} positions; build them with `max_length` {num_positions}."
        )
    check_vocabulary_fits(checkpoint, directory)
    target = find_device(device)
    if config.is_decoder:
        objective = "ltr"
    elif directory.has_pairs and "mlm+nsp" in config.objectives:
        objective = "mlm+nsp"
    else:
        objective = "mlm"
    rows = read_split(directory)
    # In fp32: bf16 would change the third digit of a perplexity.
    inference = make_inference(target, "fp32")
    batches = evaluation_batches(rows, objective, tokens_at_once(config, target), batch_size)
    model = checkpoint.pretrain_model(masked_words_alone=objective != "mlm+nsp").to(target)
    with oom_as_run_error("batch_size"):
        measured = metrics(sum_losses(model, batches, inference))
    constant = {f"{BASELINE}{name}": value for name, value in baseline(batches).items()}
    return {"rows": len(rows), **measured, **constant}


def check_vocabulary_fits(model: Checkpoint, directory: InstanceDirectory) -> None:
    """Raise `UserError` unless the model has the vocabulary of the instances."""
    own = model.vocabulary()
    if own.tokens == directory.vocabulary.tokens:
        return
    vocabulary = f"{model.name}/vocab.txt"
    if own.byte_level or own.is_foreign:
        vocabulary = f"{model.name}/tokenizer.json"
    raise UserError(
        f"{directory.path} was built with a different vocabulary from {model.name}'s; build them "
        f"with {vocabulary}, or pre-train with `vocabulary_from` instances, which moves the "
        "model to theirs."
    )


def evaluation_batches(
    rows: Rows, objective: str, num_tokens: int, max_rows: int | None = None
) -> list[PretrainBatch]:
    """Return all rows in batches of about `num_tokens` tokens and at most `max_rows` rows."""
    num_rows = max(1, num_tokens // int(rows.lengths.max(initial=1)))
    return make_batches(rows, min(num_rows, max_rows or num_rows), objective)


def text_measures(rows: Rows, vocabulary: Vocabulary, ranks: Ranks) -> dict[str, float]:
    """Return the tokens that a word of all ranks' rows has, and the characters that a token has:
    losses of different vocabularies compare by the character.
    """
    own_counts = np.bincount(rows.unmasked_ids(), minlength=len(vocabulary))
    on_device = torch.from_numpy(own_counts).to(ranks.device)
    counts = ranks.sum(on_device).cpu().numpy()
    counts[~vocabulary.is_ordinary] = 0
    num_words = int(counts[~vocabulary.continues].sum())
    lengths = np.array([len(text) for text in vocabulary.texts])
    num_tokens = max(1, int(counts.sum()))
    return {
        "tokens_per_word": num_tokens / max(1, num_words),
        "characters_per_token": int(counts @ lengths) / num_tokens,
    }


def baseline(batches: Sequence[PretrainBatch]) -> dict[str, float]:
    """Return what the best constant answers reach on these rows: the metrics of `metrics`.

    They are the frequencies of the tokens that are to be predicted (a unigram model fitted to these
    very rows) and of the labels. Few rows flatter them, as there are few different tokens.
    """
    answers_by_task: dict[str, list[torch.Tensor]] = {"mlm": [], "nsp": []}
    for batch in batches:
        answers_by_task["mlm"].append(batch.masked_ids.flatten())
        if batch.next_sentence_label_B is not None:
            answers_by_task["nsp"].append(batch.next_sentence_label_B)
    values: dict[str, float] = {}
    for name, parts in answers_by_task.items():
        if not parts:
            continue
        answers = torch.cat(parts)
        _, counts = answers[answers != IGNORED].unique(return_counts=True)
        shares = counts.double() / counts.sum()
        values[f"{name}_loss"] = -float(shares @ shares.log())  # the mean surprise, in nats
        values[f"{name}_accuracy"] = float(shares.max())
        if name == "mlm":
            values["perplexity"] = math.exp(values["mlm_loss"])
    return values


@torch.no_grad()
def sum_losses(
    model: PretrainModel, batches: Iterable[PretrainBatch], inference: Inference
) -> torch.Tensor:
    """Return the sums for `metrics` (see `batch_sums`) on the model's device."""

    def compute(batch: PretrainBatch) -> torch.Tensor:
        return batch_sums(batch, model.sums(batch))

    was_training = model.training
    model.eval()
    device = inference.device
    totals = torch.zeros(NUM_SUMS, dtype=sum_dtype(device), device=device)
    for number, batch in enumerate(batches):
        # Hardly two padded batches have as many tokens and predictions.
        is_packed = batch.row_starts is not None
        totals += inference.run(compute, batch, captures=is_packed)
        trim_memory(device, number)
    model.train(was_training)  # dropout on again, in the middle of a training
    return totals


def batch_sums(batch: PretrainBatch, sums: PretrainSums) -> torch.Tensor:
    """Return (6,): MLM and NSP loss, correct MLM and NSP predictions, tokens, labels."""
    num_predicted = (batch.masked_ids != IGNORED).sum()
    num_labels = torch.zeros_like(num_predicted)
    if batch.next_sentence_label_B is not None:
        num_labels = (batch.next_sentence_label_B != IGNORED).sum()
    # One tensor, so that adding up and looking at a batch's figures is one operation on a GPU each.
    # fp32 counts no further than 2**24 predictions.
    values = (*sums, num_predicted, num_labels)
    dtype = sum_dtype(num_predicted.device)
    return torch.stack([value.detach().to(dtype) for value in values])


def metrics(totals: torch.Tensor) -> dict[str, float]:
    """Return mean losses (nats), accuracies and perplexity from the sums of `batch_sums`."""
    mlm_loss, nsp_loss, mlm_correct, nsp_correct, num_tokens, num_labels = totals.tolist()
    values = {"loss": 0.0}  # first in every file that lists these
    if num_tokens:
        values["mlm_loss"] = mlm_loss / num_tokens
        values["mlm_accuracy"] = mlm_correct / num_tokens
        # A diverged model's would be infinite, which JSON cannot write.
        values["perplexity"] = math.exp(min(values["mlm_loss"], 700.0))
    if num_labels:
        values["nsp_loss"] = nsp_loss / num_labels
        values["nsp_accuracy"] = nsp_correct / num_labels
    values["loss"] = values.get("mlm_loss", 0.0) + values.get("nsp_loss", 0.0)
    return values
