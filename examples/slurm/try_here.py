"""Try out Slurm on this machine: a controller and three nodes, each on a host of its own."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "clusters"))

from downloads import need
from hosts import SHARED, Host
from trial import (
    PHASES,
    TIME_LIMIT_S,
    TRIALS,
    WORKERS,
    Cluster,
    Engine,
    begin_ingest,
    busy_worker,
    main,
    stage_arguments,
    wait_for_phase,
)

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
    # The controller's state is lost with its host, and jobs take the environment from the user.
    left_out = ("head", "version", "package", "broken")

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
        # What an administrator does when Slurm has set a node aside, as one whose disk was full.
        resume = ["scontrol", "update", f"NodeName={worker.name}", "State=RESUME"]
        worker.run(*resume, environment=self.variables)
        worker.start("slurmd", "-D", "-N", worker.name, environment=self.variables)

    def _start_munge(self, host: Host) -> None:
        ended = host.run("sh", "-c", START_MUNGE)
        if ended.returncode != 0:
            raise RuntimeError(ended.stderr)

    def num_workers(self, head: Host) -> int:
        lines = ["sinfo", "--noheader", "--Node", "--states=idle"]
        return len(head.run(*lines, environment=self.variables).stdout.splitlines())

    def has_work(self, worker: Host) -> bool:
        return worker.has_process("dask worker") and not worker.has_process("dask scheduler")

    def command(self, arguments: Sequence[str]) -> list[str]:
        return self.batch(arguments)

    def batch(self, arguments: Sequence[str], *options: str) -> list[str]:
        """Return the command that submits a data stage, waits, and prints the jobs' logs."""
        size = [f"--nodes={len(WORKERS)}", "--ntasks-per-node=1", "--cpus-per-task=1"]
        places = [f"--chdir={SHARED}", f"--output={SHARED}/job-%A.log", "--open-mode=append"]
        job = [*size, "--mem-per-cpu=1G", *places, *options, str(HERE / "job.sh")]
        script = 'out=$(sbatch --parsable --wait "$@"); status=$?; cat job-$out.log; exit $status'
        return ["bash", "-c", f"cd {SHARED}; {script}", "sbatch", *job, *arguments]

    def flags(self) -> list[str]:
        return []


def run_out_of_time(cluster: Cluster) -> None:
    """Let a job run out of its time; the next one of the array resumes it."""
    assert isinstance(cluster.engine, Slurm)
    with cluster.trial(
        "a job out of time, resumed by the next one of its array; the last finds it done"
    ):
        arguments = stage_arguments(cluster.folder("corpus"), cluster.folder("late"))[0]
        array = ["--array=1-3%1", "--time=1"]
        command = cluster.start(cluster.engine.batch(arguments, *array))
        wait_for_phase(cluster, command, "late/documents", "scatter")
        for name in WORKERS:  # or the quickstart would be done within a minute
            cluster.network.hosts[name].run("pkill", "-STOP", "-f", "dask worker")
        command.wait(TIME_LIMIT_S)
        cluster.check("DUE TO TIME LIMIT" in command.printed(), "the job had time enough")
        cluster.check_bytes("late", "documents")


def kill_workers(cluster: Cluster) -> None:
    """Kill the host of one worker in each phase, of a job each: a job gets no new hosts."""
    output = "lost-workers"
    stages = zip(cluster.stages(output), PHASES.items(), strict=True)
    for arguments, (folder, phases) in stages:
        for phase in phases:
            with cluster.trial(f"a worker's host killed in {phase}"):
                shutil.rmtree(cluster.shared / output / folder, ignore_errors=True)
                command = cluster.start(arguments)
                wait_for_phase(cluster, command, f"{output}/{folder}", phase)
                name = busy_worker(cluster, command)
                cluster.network.hosts[name].kill()
                cluster.end(command)
                cluster.check_bytes(output, folder)
                cluster.add_worker(name)
                cluster.wait_for_workers()


def lose_first_node(cluster: Cluster) -> None:
    """Kill the node that runs the job's script; another takes its place."""
    with cluster.trial("the first node killed and replaced: Slurm starts the job again"):
        command = begin_ingest(cluster, "lost-first")
        hosts = cluster.network.hosts
        name = next(name for name in WORKERS if hosts[name].has_process("dask scheduler"))
        hosts[name].kill()
        cluster.add_worker(name)
        cluster.end(command)
        cluster.check_bytes("lost-first", "documents")


if __name__ == "__main__":
    TRIALS.update(workers=kill_workers, time=run_out_of_time, first=lose_first_node)
    main(Slurm)
