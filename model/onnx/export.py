"""Write the ONNX form of a model, and prove it before it is kept: outputs beside PyTorch's, the
score on dev, size and time.

    onnx/model.onnx             fp32
    onnx/model_quantized.onnx   matrices in int8, quantised dynamically

Names and places are those that ``optimum``, sentence-transformers and transformers.js expect.
"""

import logging
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from timeit import repeat
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...pipeline.errors import RunError, UserError
from ..checkpoint import Checkpoint
from ..finetuning.finetuned import Finetuned, load_finetuned
from .graph import Traceable, example_rows, write_graph
from .session import Session

FP32 = "onnx/model.onnx"
INT8 = "onnx/model_quantized.onnx"
PACKAGES = ("onnx", "onnxruntime", "onnxscript")
TOLERANCE = 1e-4
"""Largest difference of an fp32 output from PyTorch's."""
CHECKED_LENGTHS = (1, 3, 16, 47, 200)
TIMED_LENGTH = 32
TIMED_BATCHES = (1, 32)
TIMED_RUNS = 10


class OnnxFile(NamedTuple):
    """A graph that was written, and what was measured of it on this machine's CPU."""

    name: str
    bytes: int
    difference: float
    """Largest one of an output from PyTorch's, over rows of random tokens."""
    milliseconds: dict[int, float]
    """Of a batch of rows of `TIMED_LENGTH` tokens, by the number of rows: the median."""
    scores: dict[str, float]
    """On dev; empty without one."""


def write_onnx(
    directory: str | Path, output: Path, *, int8: bool = False, dev: str | Path | None = None
) -> list[OnnxFile]:
    """Write the graph of the model in `directory` below `output`, with `int8` also a quantised one.

    `dev` is a labelled file of a fine-tuned model, or the instances of a pre-trained one. Raises
    `UserError` without the packages of ``[onnx]`` or for a model that has no such form, and
    `RunError` for a graph that computes something else than PyTorch.
    """
    _require_packages()
    checkpoint = Checkpoint.open(directory)
    finetuned = None
    if checkpoint.is_finetuned:
        finetuned = load_finetuned(directory, torch.device("cpu"))
    traceable = Traceable(finetuned.model if finetuned else checkpoint.pretrain_model())
    (output / FP32).parent.mkdir(parents=True, exist_ok=True)
    with _quiet():
        write_graph(traceable, output / FP32)
        if int8:
            _quantize(output / FP32, output / INT8)
    names = (FP32, INT8) if int8 else (FP32,)
    files = [_measured(traceable, output, name, finetuned, dev) for name in names]
    difference = files[0].difference
    if difference > TOLERANCE:
        for name in names:
            (output / name).unlink()
        raise RunError(
            f"The ONNX graph of {directory} differs from PyTorch by {difference:.1e}, more than "
            f"{TOLERANCE:.0e}; it was not kept."
        )
    return files


def _require_packages() -> None:
    for package in PACKAGES:
        try:
            import_module(package)
        except ImportError:
            raise UserError(
                f"ONNX needs the package {package}: install clozeworks with [onnx]."
            ) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what the exporter and the quantiser log for their own developers."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def _quantize(source: Path, target: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(source, target, weight_type=QuantType.QInt8)


def _measured(
    traceable: Traceable,
    output: Path,
    name: str,
    finetuned: Finetuned | None,
    dev: str | Path | None,
) -> OnnxFile:
    session = Session(traceable, output / name)
    scores: dict[str, float] = {}
    if dev and finetuned:
        scores = session.score_task(finetuned, Path(dev))
    elif dev:
        scores = session.score_masked_words(dev)
    milliseconds = {}
    for num_rows in TIMED_BATCHES:
        rows = example_rows(traceable, [TIMED_LENGTH] * num_rows)
        milliseconds[num_rows] = _median_ms(session, rows)
    size = (output / name).stat().st_size
    return OnnxFile(name, size, _difference(session), milliseconds, scores)


def _difference(session: Session) -> float:
    """Return the largest difference from PyTorch at real tokens, with and without padding."""
    traceable = session.traceable
    positions = traceable.model.encoder.config.max_position_embeddings
    lengths = [min(length, positions) for length in CHECKED_LENGTHS]
    largest = 0.0
    for seed, batch in enumerate((lengths, lengths[:1], lengths[-1:], lengths[1:3])):
        rows = example_rows(traceable, batch, seed)
        with torch.no_grad():
            outputs = traceable(**rows)
        wanted = outputs if isinstance(outputs, tuple) else (outputs,)
        for theirs, ours in zip(wanted, session.run(rows), strict=True):
            apart = _apart(theirs.numpy(), ours, rows["attention_mask"].numpy().astype(bool))
            largest = max(largest, apart)
    return largest


def _apart(theirs: np.ndarray, ours: np.ndarray, is_real: np.ndarray) -> float:
    if theirs.shape != ours.shape:
        return np.inf
    difference = np.abs(theirs - ours)
    if difference.shape[: is_real.ndim] == is_real.shape:
        difference = difference[is_real]  # whatever is computed at padding
    return float(difference.max())


def _median_ms(session: Session, rows: dict[str, Tensor]) -> float:
    session.run(rows)  # the first one takes longer
    seconds = repeat(lambda: session.run(rows), number=1, repeat=TIMED_RUNS)
    return 1000 * statistics.median(seconds)
