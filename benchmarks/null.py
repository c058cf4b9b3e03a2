"""CPU time of an update on a GPU that computes nothing (`tests/fixtures/null_gpu`), in all threads:
what Python costs.

    python -m benchmarks.null [CHECKOUT...] --rounds 5

Checkouts, such as a worktree of an earlier commit beside this one, take turns in a process each.
The fine-tuning is of `mini`, 32 short pairs an update, the pre-training of `mini`, 128 rows of 128
tokens; each counts the second half of its updates, when graphs are replayed.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).parents[1]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkouts", nargs="*", default=[str(ROOT)])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=400)
    given = parser.parse_args(arguments)
    found: dict[str, list[dict[str, float]]] = {checkout: [] for checkout in given.checkouts}
    sys.path.insert(0, str(ROOT))
    from tests.fixtures import null_gpu

    with tempfile.TemporaryDirectory() as folder:
        environment = null_gpu.build(Path(folder)) | {"OMP_NUM_THREADS": "1"}
        for _ in range(given.rounds):
            for checkout in given.checkouts:
                done = subprocess.run(
                    [sys.executable, __file__, "--measure", checkout, str(given.updates)],
                    env=environment,
                    stdout=subprocess.PIPE,
                    text=True,
                    check=True,
                )
                found[checkout].append(json.loads(done.stdout.splitlines()[-1]))
                print(f"{checkout}: {found[checkout][-1]}", flush=True)
    first = given.checkouts[0]
    for name in found[first][0]:
        medians = {
            checkout: statistics.median(result[name] for result in results)
            for checkout, results in found.items()
        }
        for checkout, median in medians.items():
            ratio = median / medians[first]
            print(
                f"{name}, ms of CPU an update: {median:.3f}, {ratio:.2f} of the first, {checkout}"
            )


def measure(checkout: str, num_updates: int) -> dict[str, float]:
    """Return the milliseconds of CPU of an update of each kind, by the code of a checkout."""
    sys.path[0] = str(ROOT)
    sys.modules["clozeworks"] = ModuleType("clozeworks")
    sys.modules["clozeworks"].__path__ = [checkout]
    from tests.fixtures import null_gpu

    null_gpu.install()
    return {
        "fine-tuning": steady_half(tune, num_updates),
        "pre-training": steady_half(pretrain, num_updates),
    }


def steady_half(train: Callable[[int], None], num_updates: int) -> float:
    from clozeworks.model.training.update import Updater

    marks: list[float] = []
    update: Any = Updater.update

    def marked(*arguments: Any, **options: Any) -> None:
        update(*arguments, **options)
        marks.append(time.process_time())

    with patch.object(Updater, "update", marked):
        train(num_updates)
    half = len(marks) // 2
    return 1000 * (marks[-1] - marks[half]) / (len(marks) - 1 - half)


def tune(num_updates: int) -> None:
    import numpy as np
    import torch
    from clozeworks.model.encoders.bert_config import ModelConfig
    from clozeworks.model.finetuning.config import FinetuneConfig
    from clozeworks.model.finetuning.results import Hyperparameters
    from clozeworks.model.finetuning.run import FinetuneWork
    from clozeworks.model.finetuning.setup import FinetuneSetup
    from clozeworks.model.tasks.batches import Feature
    from clozeworks.model.tasks.catalogue import GLUE
    from clozeworks.model.tasks.splits import TaskSplits
    from clozeworks.model.tokenizer import TokenRow
    from clozeworks.model.training.ranks import Ranks

    task = GLUE["sst2"]
    rng = np.random.default_rng(0)
    features = []
    for index in range(3200):
        ids = rng.integers(5, 1000, rng.integers(20, 48)).astype(np.int32)
        features.append(Feature(TokenRow(ids, len(ids)), np.array(1), index))
    gpu = torch.device("cuda", 0)
    nothing: Any = None
    work = FinetuneWork(
        setup=FinetuneSetup(
            splits=TaskSplits(task, [], {}, {}, False),
            checkpoint=nothing,
            config=FinetuneConfig(precision="bf16"),
            train=features,
            dev={},
        ),
        run=Hyperparameters(
            learning_rate=1e-4, batch_size=32, epochs=32 * num_updates / len(features), seed=0
        ),
        model=task.model(ModelConfig.named("mini", vocab_size=1000)).to(gpu),
        ranks=Ranks(0, 1, gpu),
    )
    work.train()


def pretrain(num_updates: int) -> None:
    from clozeworks.model.config import PretrainConfig
    from clozeworks.model.pretraining import batches, work
    from clozeworks.model.pretraining.pretrain import pretrain as train

    from tests.fixtures.instances_fixture import write_instances

    config = PretrainConfig(
        model="mini", steps=num_updates, batch_size=128, precision="bf16", compile=False
    )
    # Zeros are no outputs of attention, and have no means.
    metrics = {"loss": 1.0, "mlm_loss": 1.0, "mlm_accuracy": 0.5, "perplexity": 2.0}
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(batches, "check_packing", lambda *_: None),
        patch.object(work, "metrics", lambda totals: dict(metrics)),
    ):
        instances = write_instances(Path(folder, "rows"), max_length=128, rows_per_group=2000)
        train(config, [str(instances)], Path(folder, "run"))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(sys.argv[2], int(sys.argv[3]))))
    else:
        main()
