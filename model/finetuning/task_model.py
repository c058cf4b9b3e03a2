"""The model of a task: made from a checkpoint, and written in Hugging Face's layout."""

from pathlib import Path

import torch
from torch import nn

from ...pipeline.seeding import rng_for
from ..checkpoint import TASK, Checkpoint, save_model, write_json
from ..encoders.encoder import initialise
from ..tasks.catalogue import task_settings
from ..tasks.task import Task, TaskModel
from .config import FinetuneConfig


def make_model(task: Task, checkpoint: Checkpoint, config: FinetuneConfig, seed: int) -> TaskModel:
    """Return the encoder of `checkpoint`, on the CPU, with a new head unless `keep_head`; a pooler,
    or a ModernBERT's layers before the head, that are not there are new too.
    """
    shape = checkpoint.shape.with_dropout(config.dropout)
    head_seed = int(rng_for(seed, "finetune", "head").integers(2**62))
    with torch.random.fork_rng(devices=[]):  # the caller's generator stays as it is
        # For modules of a head that `initialise` does not know and leaves as PyTorch makes them.
        torch.manual_seed(head_seed)
        model = task.model(shape)
    generator = torch.Generator().manual_seed(head_seed)
    encoder = model.encoder
    new = [encoder.get_submodule(name) for name in encoder.optional_modules]
    new.extend(child for child in model.children() if child is not encoder)
    for module in new:
        initialise(module, shape, generator)
    if config.random_weights:
        initialise(encoder, shape, generator)
    elif config.keep_head:
        checkpoint.load_into(model, new=encoder.optional_weights)
    else:
        # Only these, so that the last layer of another task in the checkpoint is left there.
        parts = nn.ModuleDict(model.pretrained_parts)
        checkpoint.load_into(parts, new=(*encoder.optional_weights, "head."))
    return model


def architecture(model: TaskModel) -> str:
    """Return the name of the model's class in ``transformers``, if it has one there."""
    if model.hf_name:
        return f"{model.encoder.config.hf_prefix}{model.hf_name}"
    return type(model).__name__


def write_model(folder: Path, model: TaskModel, task: Task, checkpoint: Checkpoint) -> None:
    """Write a model directory that `transformers` loads, with ``task.json``."""
    shape = model.encoder.config
    config = shape.to_hf(architecture(model))
    config |= task.hf_settings()
    weights = model.state_dict()
    if not model.uses_pooler:
        for name in list(weights):
            if name.startswith(model.encoder.optional_weights):
                del weights[name]
    save_model(folder, weights, config, checkpoint.tokenizer_files())
    write_json(folder / TASK, task_settings(task))
