"""Measure losses and accuracies on a held-out split: without dropout, with the stored masks, in the
order of the files.
"""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from ...pipeline.errors import UserError
from ...pipeline.vocabulary.vocabulary import read_vocabulary
from ..checkpoint import read_config, read_model
from ..encoders.heads import IGNORED, PretrainModel, PretrainSums
from ..training.device import autocast, find_device, oom_as_user_error, trim_memory
from .batches import PretrainBatch, make_batches
from .data import InstanceDirectory, open_instances, read_split
from .rows import InstanceRows

TOKENS_PER_BATCH = 4096
NUM_SUMS = 6


def evaluate(
    run: str | Path,
    instances: str,
    split: str = "validation",
    device: str = "auto",
    batch_size: int | None = None,
) -> dict[str, Any]:
    """Return the metrics (see `metrics`) of the model in `run` on a split of `instances`.

    A left-to-right model predicts every token from those before it; next-sentence prediction needs
    pairs, and a model with that head. `batch_size` rows are computed at once, by default as many as
    make `TOKENS_PER_BATCH` tokens. Raises `UserError` if there is no model or no split, if their
    vocabularies differ, or if a batch does not fit into memory.
    """
    directory = open_instances(instances, split)
    config = read_config(run)
    # Before the weights are read, which takes longer.
    _check_length_fits(run, directory)
    check_vocabulary_fits(run, directory)
    target = find_device(device)
    if config.is_decoder:
        objective = "ltr"
    elif directory.has_pairs and "mlm+nsp" in config.objectives:
        objective = "mlm+nsp"
    else:
        objective = "mlm"
    batches = evaluation_batches(read_split(directory), objective, batch_size)
    with oom_as_user_error("batch_size"):
        return metrics(sum_losses(read_model(run).to(target), batches, target))


def _check_length_fits(model: str | Path, directory: InstanceDirectory) -> None:
    num_positions = read_config(model).max_position_embeddings
    if directory.max_length > num_positions:
        rows = f"{directory.path} contains rows of up to {directory.max_length} tokens"
        limit = f"the model in {model} has {num_positions} positions"
        raise UserError(f"{rows}, but {limit}; build them with `max_length` {num_positions}.")


def check_vocabulary_fits(model: str | Path, directory: InstanceDirectory) -> None:
    """Raise `UserError` unless the model directory `model` has the vocabulary of the instances."""
    if read_vocabulary(str(model)).tokens == read_vocabulary(directory.path).tokens:
        return
    raise UserError(
        f"{directory.path} was built with a different vocabulary from {model}'s; build them "
        f"with {model}/vocab.txt, or pre-train with `vocabulary_from` instances, which moves the "
        "model to theirs."
    )


def evaluation_batches(
    rows: InstanceRows, objective: str, max_rows: int | None = None
) -> list[PretrainBatch]:
    """Return all rows in batches of about `TOKENS_PER_BATCH` tokens and at most `max_rows` rows."""
    num_rows = max(1, TOKENS_PER_BATCH // int(rows.lengths.max(initial=1)))
    if max_rows is not None:
        num_rows = min(num_rows, max_rows)
    return make_batches(rows, num_rows, objective)


@torch.no_grad()
def sum_losses(
    model: PretrainModel,
    batches: Iterable[PretrainBatch],
    device: torch.device,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Return the sums for `metrics` (see `batch_sums`) on `device`, with products in `dtype`."""
    was_training = model.training
    model.eval()
    totals = torch.zeros(NUM_SUMS, dtype=torch.float64, device=device)
    for number, batch in enumerate(batches):
        batch = batch.to(device)
        # Not through __call__: a compiled model would be compiled again for the shapes of
        # evaluation.
        with autocast(device, dtype):
            totals += batch_sums(batch, model.forward(*batch))
        trim_memory(device, number)
    model.train(was_training)  # dropout on again, in the middle of a training
    return totals


def batch_sums(batch: PretrainBatch, sums: PretrainSums) -> torch.Tensor:
    """Return six sums, float64 (6,): MLM and NSP loss, correct MLM and NSP predictions, tokens and
    labels to predict.
    """
    num_predicted = (batch.masked_ids != IGNORED).sum()
    num_labels = torch.zeros_like(num_predicted)
    if batch.next_sentence_label_B is not None:
        num_labels = (batch.next_sentence_label_B != IGNORED).sum()
    # One tensor, so that adding up and looking at a batch's figures is one operation on a GPU each.
    # In float64, because fp32 counts no further than 2**24 predictions.
    values = (*sums, num_predicted, num_labels)
    return torch.stack([value.detach().double() for value in values])


def metrics(totals: torch.Tensor) -> dict[str, float]:
    """Return mean losses (nats), accuracies and perplexity from the sums of `batch_sums`; of NSP
    only with labels.
    """
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
