"""Try out Dask on this machine: a scheduler and three workers, each on a host of its own."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "clusters"))

from hosts import Host
from trial import Engine, main

SCHEDULER = "tcp://head:8786"
SETTINGS = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_SATURATION": "inf"}
"""Of the scheduler; see README.md."""
DASK = (sys.executable, "-m", "dask")


class Dask(Engine):
    """A scheduler, and a worker with one thread on each host."""

    name = "dask"

    def start_head(self, head: Host) -> None:
        options = ["--port", "8786", "--no-dashboard"]
        head.start(*DASK, "scheduler", *options, environment=SETTINGS)

    def start_worker(self, worker: Host) -> None:
        options = ["--nthreads", "1", "--no-dashboard", "--local-directory", "/tmp"]
        worker.start(*DASK, "worker", SCHEDULER, *options)

    def num_workers(self, head: Host) -> int:
        script = (
            "from distributed import Client\n"
            f"print(len(Client('{SCHEDULER}').scheduler_info(n_workers=-1)['workers']))\n"
        )
        return int(head.run(sys.executable, "-c", script).stdout or 0)

    def flags(self) -> list[str]:
        return ["--runner=DaskRunner", f"--dask_client_address={SCHEDULER}"]

    def job_flags(self) -> list[str]:
        runner = "apache_beam.runners.dask.dask_runner.DaskRunner"
        return [
            f"--runner={runner}",
            f"--dask_client_address={SCHEDULER}",
            "--dask_npartitions=64",
        ]


if __name__ == "__main__":
    main(Dask)
