"""Try out Slurm on this machine: a controller and three nodes, each on a host of its own."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "clusters"))

from downloads import need
from hosts import SHARED, Host
from trial import WORKERS, Engine, main

HERE = Path(__file__).resolve().parent
CONFIG = HERE / "slurm.conf"
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged")

# All hosts of a cluster trust each other by a key that they share.
START_MUNGE = """
mkdir -p -m 0755 /run/munge /tmp/slurm/state /tmp/slurm/spool
echo "a key that every host of this trial knows; a real one is secret" > /run/munge/key
chmod 0600 /run/munge/key
cd /run/munge
munged --force --key-file=/run/munge/key --seed-file=/run/munge/seed \
    --pid-file=/run/munge/munged.pid --log-file=/run/munge/munged.log
"""


class Slurm(Engine):
    """A controller, and a node on each worker's host; `job.sh` starts Dask in each job."""

    name = "slurm"
    on_store = False

    def __init__(self) -> None:
        for program in PROGRAMS:
            need(program, "slurm-wlm")

    variables: ClassVar = {"SLURM_CONF": str(CONFIG)}

    def start_user(self, user: Host) -> None:
        self._start_munge(user)

    def start_head(self, head: Host) -> None:
        self._start_munge(head)
        head.start("slurmctld", "-D", environment=self.variables)

    def start_worker(self, worker: Host) -> None:
        self._start_munge(worker)
        worker.start("slurmd", "-D", "-N", worker.name, environment=self.variables)

    def _start_munge(self, host: Host) -> None:
        ended = host.run("sh", "-c", START_MUNGE)
        if ended.returncode != 0:
            raise RuntimeError(ended.stderr)

    def num_workers(self, head: Host) -> int:
        lines = ["sinfo", "--noheader", "--Node", "--states=idle"]
        return len(head.run(*lines, environment=self.variables).stdout.splitlines())

    def command(self, arguments: Sequence[str]) -> list[str]:
        size = [f"--nodes={len(WORKERS)}", "--ntasks-per-node=1", "--cpus-per-task=1"]
        places = [f"--chdir={SHARED}", f"--output={SHARED}/job-%j.log"]
        job = [*size, "--mem-per-cpu=1G", *places, str(HERE / "job.sh")]
        # The log is shown as the command's output would be.
        script = 'out=$(sbatch --parsable --wait "$@"); status=$?; cat job-$out.log; exit $status'
        return ["bash", "-c", f"cd {SHARED}; {script}", "sbatch", *job, *arguments]

    def flags(self) -> list[str]:
        return []


if __name__ == "__main__":
    main(Slurm)
