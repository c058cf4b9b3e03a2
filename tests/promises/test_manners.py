"""Library calls change nothing of the process that calls them.

Calls that import the same libraries share a fresh process, which compares its own settings before
and after each.
"""

import locale
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from clozeworks.pipeline.seeding import stable_hash

pytestmark = pytest.mark.slow


class Call(NamedTuple):
    """A library call to check."""

    prepare: Callable[[Path], None]
    """Writes the input below a folder."""
    run: Callable[[Path], object]
    """Makes the call on that input, with its output in the same folder."""


class Process(NamedTuple):
    """Calls to check in one process."""

    calls: dict[str, Call]
    imports: tuple[str, ...]
    """Libraries that the calls import when they need them, and whose own import changes settings:
    they are imported before the comparison begins.
    """
    may_change: tuple[str, ...] = ()
    """Settings that a library changes, and that cannot be kept from changing."""
    imports_beam: bool = False
    """Whether the calls may import Beam."""


def write_data(folder: Path) -> None:
    from tests.fixtures.instances_fixture import write_instances

    write_instances(folder / "instances")


def run_pretrain(folder: Path) -> None:
    from clozeworks.model import PretrainConfig, pretrain

    shape: dict[str, Any] = {"num_layers": 1, "hidden_size": 8, "num_heads": 1}
    config = PretrainConfig(**shape, steps=3, batch_size=8, device="cpu")
    summary = pretrain(config, [str(folder / "instances")], folder / "run")
    assert summary["status"] == "finished"


def write_task(folder: Path) -> None:
    from tests.fixtures.checkpoint_fixture import make_checkpoint

    make_checkpoint(folder / "checkpoint")
    (folder / "data").mkdir()
    lines = ["sentence\tlabel", *["the cat\t0", "the dog\t1"] * 20]
    for name in ("train.tsv", "dev.tsv"):
        (folder / "data" / name).write_text("\n".join(lines) + "\n")


def run_finetune(folder: Path) -> None:
    from clozeworks.model import FinetuneConfig, finetune

    config = FinetuneConfig(epochs=1, seeds=1, learning_rates=(1e-3,), max_length=16, device="cpu")
    output = folder / "finetuned"
    summary = finetune("classify", folder / "data", folder / "checkpoint", output, config)
    assert summary["status"] == "finished"


def write_texts(folder: Path) -> None:
    (folder / "texts").mkdir()
    for number in range(12):
        sentences = [f"Book {number} has {i} pages about {number * i} bears." for i in range(20)]
        (folder / "texts" / f"{number}.txt").write_text(" ".join(sentences))


def run_data_stages(workers: int, *beam_options: str) -> Callable[[Path], None]:
    """Return a function that makes documents, a vocabulary and instances, and audits them."""

    def run(folder: Path) -> None:
        from clozeworks import pipeline

        options = pipeline.RunOptions(workers=workers, beam_options=beam_options)
        texts, documents, vocab, instances = (
            str(folder / name) for name in ("texts", "documents", "vocab", "instances")
        )
        pipeline.ingest([texts], documents, pipeline.IngestConfig(), options)
        vocab_config = pipeline.VocabConfig(size=100)
        pipeline.learn_vocabulary(documents, vocab, vocab_config, options)
        build_config = pipeline.BuildConfig(max_length=32, duplicates=1)
        pipeline.build(documents, vocab, instances, build_config, options)
        assert pipeline.audit(instances).checks

    return run


def run_make_corpus(folder: Path) -> None:
    from clozeworks import pipeline

    manifests = pipeline.make_corpus(
        [str(folder / "texts")],
        str(folder / "corpus"),
        pipeline.IngestConfig(),
        pipeline.VocabConfig(size=100),
        pipeline.BuildConfig(max_length=32, duplicates=1),
        pipeline.RunOptions(workers=1),
        progress=lambda progress: None,
    )
    assert manifests.instances.shards


DATA_LIBRARIES = ("pyarrow.parquet", "tokenizers", "sentencex")
ON_BEAM = run_data_stages(1, "--direct_running_mode=in_memory")
BEAM_LIBRARIES = tuple(
    f"apache_beam.runners.{name}" for name in ("direct.direct_runner", "worker.operations")
)
LATE = ("tensorboard.summary.writer.record_writer", "sklearn.linear_model", "scipy.stats")
ON_WORKERS = {f"{number} workers": Call(write_texts, run_data_stages(number)) for number in (1, 2)}
IN_BEAM = {"stages": Call(write_texts, ON_BEAM), "make_corpus": Call(write_texts, run_make_corpus)}
TRAINING = {"pretrain": Call(write_data, run_pretrain), "finetune": Call(write_task, run_finetune)}
PROCESSES = {
    "data stages": Process(ON_WORKERS, DATA_LIBRARIES),
    # DirectRunner imports its libraries when it runs its first pipeline. Beam draws from the global
    # generator, for example to sample bundles.
    "Beam": Process(
        IN_BEAM, (*DATA_LIBRARIES, *BEAM_LIBRARIES), may_change=("random",), imports_beam=True
    ),
    "training": Process(TRAINING, ("torch._dynamo", *LATE)),
}


def settings() -> dict[str, object]:
    """Return all settings of this process that a library call could change, by name."""
    handlers = {number.name: signal.getsignal(number) for number in signal.valid_signals()
                if isinstance(number, signal.Signals)}  # fmt: skip
    umask = os.umask(0)
    os.umask(umask)
    return {
        "signal handlers": handlers,
        "environment": dict(os.environ),
        "file descriptors": [os.stat(number)[:3] for number in (0, 1, 2)],
        "standard streams": (sys.stdin, sys.stdout, sys.stderr),
        "working directory": os.getcwd(),
        "umask": umask,
        "locale": locale.setlocale(locale.LC_ALL),
        "warnings' filters": list(warnings.filters),
        "logging": (list(logging.root.handlers), logging.root.level, logging.root.disabled),
        "hooks": (sys.excepthook, threading.excepthook, sys.unraisablehook),
        "random": stable_hash(repr(random.getstate())),
        **numpy_settings(),
        **arrow_settings(),
        **torch_settings(),
    }


def numpy_settings() -> dict[str, object]:
    if "numpy" not in sys.modules:
        return {}
    import numpy as np

    return {
        "NumPy's errors": np.geterr(),
        "NumPy's printing": np.get_printoptions(),
        "NumPy's generator": stable_hash(repr(np.random.get_state(legacy=False))),
    }


def arrow_settings() -> dict[str, object]:
    if "pyarrow" not in sys.modules:
        return {}
    import pyarrow as pa

    return {
        "Arrow's memory pool": pa.default_memory_pool().backend_name,
        "Arrow's threads": (pa.cpu_count(), pa.io_thread_count()),
    }


def torch_settings() -> dict[str, object]:
    if "torch" not in sys.modules:
        return {}
    import torch

    backends = torch.backends
    return {
        "PyTorch's threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "PyTorch's generator": stable_hash(torch.get_rng_state().numpy().tobytes().hex()),
        "PyTorch's defaults": (
            torch.get_default_dtype(),
            torch.get_default_device(),
            torch.is_grad_enabled(),
            torch.are_deterministic_algorithms_enabled(),
            torch.get_float32_matmul_precision(),
        ),
        "attention's kernels": (
            backends.cuda.flash_sdp_enabled(),
            backends.cuda.mem_efficient_sdp_enabled(),
            backends.cuda.math_sdp_enabled(),
            backends.cuda.cudnn_sdp_enabled(),
        ),
        "cuDNN": (backends.cudnn.enabled, backends.cudnn.benchmark, backends.cudnn.deterministic),
        "TF32": (backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32),
    }


@pytest.mark.parametrize("name", PROCESSES)
def test_library_calls_change_nothing_of_their_process(name: str, tmp_path: Path):
    for call_name, call in PROCESSES[name].calls.items():
        (tmp_path / call_name).mkdir()
        call.prepare(tmp_path / call_name)
    ended = subprocess.run(
        [sys.executable, __file__, name, str(tmp_path)], capture_output=True, text=True
    )
    assert (ended.stdout, ended.returncode) == ("", 0), ended.stderr
    if name == "training":
        assert ended.stderr.startswith("pretrain\nfinetune\n")  # pre-training says nothing


def check(process: Process, folder: Path) -> None:
    """Make the calls of a process, and print each setting that they changed."""
    for library in process.imports:
        import_module(library)
    for name, call in process.calls.items():
        print(name, file=sys.stderr, flush=True)
        before = settings()
        call.run(folder / name)
        after = settings()
        for setting, value in before.items():
            if after[setting] != value and setting not in process.may_change:
                print(f"{name}: {setting}: {value} -> {after[setting]}")
    if "apache_beam" in sys.modules and not process.imports_beam:
        print("Beam is imported")


if __name__ == "__main__":
    check(PROCESSES[sys.argv[1]], Path(sys.argv[2]))
