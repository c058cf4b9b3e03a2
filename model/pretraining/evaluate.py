"""Losses and accuracies on a held-out split: without dropout, with the stored masks, in the order
of the files.
"""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from ...pipeline.errors import UserError
from ...pipeline.vocabulary.vocabulary import read_vocabulary
from ..checkpoint import read_config, read_model
from ..heads import IGNORED, BertForPreTraining, PretrainSums
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
    pairs. `batch_size` rows are computed at once, by default as many as make `TOKENS_PER_BATCH`
    tokens. Raises `UserError` if there is no model or no split, if their vocabularies differ, or if
    a batch does not fit into memory.
    """
    directory = open_instances(instances, split)
    config = read_config(run)
    check_fits(run, directory)
    target = find_device(device)
    objective = "ltr" if config.is_decoder else "mlm+nsp" if directory.has_pairs else "mlm"
    batches = evaluation_batches(read_split(directory), objective, batch_size)
    with oom_as_user_error("--batch-size"):
        return metrics(sum_losses(read_model(run).to(target), batches, target))


def check_fits(
    model: str | Path,
    directory: InstanceDirectory,
    *,
    own_vocabulary: bool = True,
    own_positions: bool = True,
) -> None:
    """Raise `UserError` unless the model directory `model` has the positions and the vocabulary of
    instances, of both only what it keeps as its own.
    """
    num_positions = read_config(model).max_position_embeddings
    if own_positions and directory.max_length > num_positions:
        limit = f"the model in {model} has {num_positions} positions; build them with --max-length {num_positions}"
        raise UserError(
            f"{directory.path} contains rows of up to {directory.max_length} tokens, but {limit}."
        )
    if (
        own_vocabulary
        and read_vocabulary(str(model)).tokens != read_vocabulary(directory.path).tokens
    ):
        advice = f"build them with {model}/vocab.txt, or move the model with pretrain --vocabulary-from instances"
        raise UserError(
            f"{directory.path} was built with a different vocabulary from that of {model}; {advice}."
        )


def evaluation_batches(
    rows: InstanceRows, objective: str, max_rows: int | None = None
) -> list[PretrainBatch]:
    """Return all rows in batches of about `TOKENS_PER_BATCH` tokens and at most `max_rows` rows."""
    num_rows = max(1, TOKENS_PER_BATCH // int(rows.lengths.max(initial=1)))
    return make_batches(rows, min(num_rows, max_rows or num_rows), objective)


@torch.no_grad()
def sum_losses(
    model: BertForPreTraining,
    batches: Iterable[PretrainBatch],
    device: torch.device,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Return the sums for `metrics` (see `batch_sums`) on `device`; matrix products are in `dtype`."""
    was_training = model.training
    model.eval()
    totals = torch.zeros(NUM_SUMS, dtype=torch.float64, device=device)
    for number, batch in enumerate(batches):
        # Not through __call__: a compiled model would be compiled again for the shapes of
        # evaluation.
        batch = batch.to(device)
        with autocast(device, dtype):
            totals += batch_sums(batch, model.forward(*batch))
        trim_memory(device, number)
    model.train(was_training)
    return totals


def batch_sums(batch: PretrainBatch, sums: PretrainSums) -> torch.Tensor:
    """Return six sums, float64: MLM and NSP loss, correct MLM and NSP predictions, tokens and
    labels to predict.
    """
    num_predicted, labels = (batch.masked_ids != IGNORED).sum(), batch.next_sentence_label_B
    num_labels = torch.zeros_like(num_predicted) if labels is None else (labels != IGNORED).sum()
    return torch.stack([value.detach().double() for value in (*sums, num_predicted, num_labels)])


def metrics(totals: torch.Tensor) -> dict[str, float]:
    """Return mean losses (nats), accuracies and perplexity from the sums of `batch_sums`; of NSP
    only with labels.
    """
    mlm_loss, nsp_loss, mlm_correct, nsp_correct, num_tokens, num_labels = totals.tolist()
    values = {"loss": 0.0}
    if num_tokens:
        values |= {"mlm_loss": mlm_loss / num_tokens, "mlm_accuracy": mlm_correct / num_tokens}
        values["perplexity"] = math.exp(min(mlm_loss / num_tokens, 700.0))
    if num_labels:
        values |= {"nsp_loss": nsp_loss / num_labels, "nsp_accuracy": nsp_correct / num_labels}
    values["loss"] = values.get("mlm_loss", 0.0) + values.get("nsp_loss", 0.0)
    return values
