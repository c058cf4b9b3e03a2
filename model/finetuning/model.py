"""The model of a task: made from a checkpoint, written in Hugging Face's layout, read again, and
asked for the outputs of its head.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from ...pipeline.errors import UserError
from ...pipeline.seeding import rng_for
from ...pipeline.storage.state import describe_absence
from ..checkpoint import TASK, Checkpoint, ModelFiles
from ..copies import local_copy
from ..encoders.encoder import UnsetWeights, initialise
from ..tasks.batches import Feature, filled, make_batch
from ..tasks.catalogue import read_task
from ..tasks.task import Task, TaskModel
from ..tokenizer import TextTokenizer, tokenizer_files
from ..training.device import fetch, one_behind, trim_memory
from ..training.graphs import Inference, make_inference, widths_of
from .config import FinetuneConfig


def make_model(task: Task, checkpoint: Checkpoint, config: FinetuneConfig, seed: int) -> TaskModel:
    """Return the encoder of `checkpoint`, on the CPU, with a new head."""
    shape = checkpoint.shape.with_dropout(config.dropout)
    head_seed = int(rng_for(seed, "finetune", "head").integers(2**62))
    with torch.random.fork_rng(devices=[]):  # the caller's generator stays as it is
        # For modules of a head that `initialise` does not know and leaves as PyTorch makes them.
        torch.manual_seed(head_seed)
        model = task.model(shape)
    generator = torch.Generator().manual_seed(head_seed)
    encoder = model.encoder
    for name in encoder.optional_modules:
        initialise(encoder.get_submodule(name), shape, generator)
    for child in model.children():
        if child is not encoder:
            initialise(child, shape, generator)
    if config.random_weights:
        initialise(encoder, shape, generator)
        return model
    # Only these are read: the last layer of another task in the checkpoint is left there.
    pretrained = (encoder.prefix, "head")
    parts = {name: child for name, child in model.named_children() if name in pretrained}
    checkpoint.load_into(nn.ModuleDict(parts), new=(*encoder.optional_weights, "head."))
    return model


def model_files(model: TaskModel, task: Task, checkpoint: Checkpoint) -> ModelFiles:
    """Return a model as `transformers` loads it, under the name that its class has there."""
    shape = model.encoder.config
    name = type(model).__name__
    if model.hf_name:
        name = f"{shape.hf_prefix}{model.hf_name}"
    weights = model.state_dict()
    for weight in list(weights):
        if weight.startswith(_unused(model)):
            del weights[weight]
    config = shape.to_hf(name) | task.hf_settings()
    return ModelFiles(weights, config, tokenizer_files(checkpoint.name))


def _unused(model: TaskModel) -> tuple[str, ...]:
    """Return the prefixes of the weights that the model has, but `transformers` has not."""
    if model.uses_pooler:
        return ()
    return model.encoder.optional_weights


def read_weights(model: TaskModel, checkpoint: Checkpoint) -> None:
    """Copy the weights of a fine-tuned `checkpoint` into `model`."""
    checkpoint.load_into(model, new=_unused(model))


class Finetuned(NamedTuple):
    """A fine-tuned model with its task and tokenizer."""

    task: Task
    tokenizer: TextTokenizer
    model: TaskModel
    inference: Inference


def find_model(directory: str | Path) -> Path:
    """Return a local copy of a model's directory, also if it is the only one in `directory`."""
    folder = local_copy(directory)
    if (folder / TASK).is_file():
        return folder
    models = sorted(path.parent for path in folder.glob(f"*/{TASK}"))
    if len(models) == 1:
        return models[0]
    fault = describe_absence(str(directory)) or f"{directory} has no {TASK}"
    advice = "give a model that `clozeworks finetune` wrote"
    if models:
        advice = f"give one of its models: {', '.join(map(str, models))}"
    raise UserError(f"{fault}: {advice}.")


def load_finetuned(
    directory: str | Path, device: torch.device, task: Task | None = None
) -> Finetuned:
    """Load the model that `finetune` wrote; `task` is the user's own that it was given."""
    directory = find_model(directory)
    task = read_task(directory / TASK, task)
    checkpoint = Checkpoint.open(directory)
    tokenizer = checkpoint.text_tokenizer(task.max_length)
    with UnsetWeights():
        model = task.model(checkpoint.shape)
    read_weights(model, checkpoint)
    return Finetuned(task, tokenizer, model.to(device).eval(), make_inference(device))


@torch.inference_mode()
def infer(
    model: TaskModel, features: Sequence[Feature], inference: Inference, most_tokens: int = 8192
) -> list[np.ndarray]:
    """Return the head's outputs for each feature, in order, without dropout, of about `most_tokens`
    at once: float32; of a model with a `scale` in the unit of the scores, float64.

    The precision is the device's default, so that thresholds tuned on dev hold for `predict`.
    """
    widths = widths_of(inference.graphs, model.encoder.config.num_positions)

    def launch(indices: list[int]) -> Callable[[], tuple[list[int], np.ndarray]]:
        batch = make_batch([features[index] for index in indices], widths)
        values = inference.run(model, batch)
        computed = fetch(values.float())
        if model.scale:
            scale = model.scale
            return lambda: (indices, scale.restore(computed().numpy()))
        return lambda: (indices, computed().numpy())

    was_training = model.training
    model.eval()
    outputs: list[np.ndarray] = [np.empty(0)] * len(features)
    launched = map(launch, _batches(features, widths, most_tokens))
    for number, (indices, values) in enumerate(one_behind(launched)):
        for index, value in zip(indices, values, strict=True):
            if model.per_token:
                value = value[: features[index].length]
            # Copied to free the memory of the padded batch.
            outputs[index] = value.copy()
        trim_memory(inference.device, number)
    model.train(was_training)
    return outputs


def _batches(
    features: Sequence[Feature], widths: Sequence[int], most_tokens: int
) -> Iterator[list[int]]:
    """Yield batches of indices of features of similar length, which are filled to `widths`."""
    most_rows = 256  # texts of a few words: Python copies the outputs of each row
    order = sorted(range(len(features)), key=lambda index: features[index].length)
    if widths:
        order.reverse()  # the first is the longest: a width has batches of one size
    start = 0
    while start < len(order):
        # Otherwise it is only a lower bound of the batch's longest: the size is a guess.
        width = filled(features[order[start]].length, widths)
        size = min(most_rows, most_tokens // width + 1)
        yield order[start : start + size]
        start += size
