"""Run an ONNX graph on the CPU, and score it on labelled rows."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...pipeline.instances.rows import select
from ..encoders.heads import IGNORED
from ..finetuning.finetuned import Finetuned
from ..pretraining.data import open_instances, read_split
from ..pretraining.evaluate import evaluation_batches
from ..tasks.batches import Feature, TaskBatch, make_batch
from ..tasks.splits import read_labelled
from .graph import Traceable

ROWS_AT_ONCE = 32
MASKED_ROWS = 256
"""Validation rows on which masked words are guessed."""


class Session:
    """A graph, with what its outputs mean."""

    def __init__(self, traceable: Traceable, path: Path) -> None:
        # Imported late: only [onnx] brings it.
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors
        self._session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )
        self.traceable = traceable

    def run(self, rows: dict[str, Tensor]) -> list[np.ndarray]:
        """Return the outputs, in their order, for inputs by name."""
        values = {name: value.numpy() for name, value in rows.items()}
        return [np.asarray(output) for output in self._session.run(None, values)]

    def score_masked_words(self, instances: str | Path) -> dict[str, float]:
        """Return the share of the masked words of held-out rows that are guessed right."""
        rows = read_split(open_instances(str(instances), "validation"))
        rows = select(rows, np.arange(min(MASKED_ROWS, len(rows))))
        num_right = 0
        num_masked = 0
        for batch in evaluation_batches(rows, "mlm", ROWS_AT_ONCE):
            mask_BL = batch.attention_mask_BL
            if mask_BL is None:
                mask_BL = torch.ones_like(batch.input_ids)
            values = {
                "input_ids": batch.input_ids,
                "attention_mask": mask_BL.long(),
                "token_type_ids": batch.token_type_ids,
            }
            (logits_BLV,) = self.run({name: values[name] for name in self.traceable.inputs})
            guesses = logits_BLV.reshape(-1, logits_BLV.shape[-1])[batch.masked_index].argmax(-1)
            masked_ids = batch.masked_ids.numpy()
            num_right += int((guesses == masked_ids).sum())
            num_masked += int((masked_ids != IGNORED).sum())
        return {"mlm_accuracy": num_right / max(1, num_masked)}

    def score_task(self, finetuned: Finetuned, dev: Path) -> dict[str, float]:
        """Return the task's metrics on a labelled file."""
        task = finetuned.task
        examples = read_labelled(task, [dev])
        features = task.encode(examples, finetuned.tokenizer)
        return task.scores(list(self._task_outputs(features)), features, examples)

    def _task_outputs(self, features: Sequence[Feature]) -> Iterator[np.ndarray]:
        """Yield what the head of the task's model computes for each feature."""
        per_token = getattr(self.traceable.model, "per_token", False)
        for first in range(0, len(features), ROWS_AT_ONCE):
            some = features[first : first + ROWS_AT_ONCE]
            batch = make_batch(some)
            outputs = self.run(self._inputs(batch))
            values = outputs[0]
            if len(outputs) > 1:  # the first and the last token of an answer
                values = np.stack(outputs, -1)
            for feature, value in zip(some, values, strict=True):
                yield value[: feature.length] if per_token else value

    def _inputs(self, batch: TaskBatch) -> dict[str, Tensor]:
        values = {
            "input_ids": batch.input_ids_BL,
            "attention_mask": batch.attention_mask_BL.long(),
            "token_type_ids": batch.token_type_ids_BL,
        }
        num_choices = self.traceable.form.num_choices
        if num_choices:
            values = {name: value.unflatten(0, (-1, num_choices)) for name, value in values.items()}
        return {name: values[name] for name in self.traceable.inputs}
