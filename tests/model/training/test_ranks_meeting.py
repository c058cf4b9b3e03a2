"""A rank that waits for the others says so, and can be stopped."""

import os
import signal
import subprocess
import sys

import pytest
from clozeworks.model.training import ranks
from clozeworks.pipeline.errors import UserError

from tests.fixtures.process_fixture import TIME_LIMIT_S

CODE = """
import signal
from datetime import timedelta
from clozeworks.model.training import ranks
signal.signal(signal.SIGTERM, lambda *_: None)  # as a command handles it
try:
    ranks.meet("gloo", 2, timedelta(seconds={seconds}), tell_after_s=0.5)
except ranks.RunError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [600, 2])
def test_a_rank_that_waits_can_be_stopped_and_ends_by_itself(seconds: int):
    variables = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    with subprocess.Popen(
        [sys.executable, "-c", CODE.format(seconds=seconds)],
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        line = process.stderr.readline()
        assert line == "Rank 0 is waiting for 2 processes to meet at 127.0.0.1:0.\n"
        if seconds == 600:
            process.send_signal(signal.SIGTERM)
            assert process.wait(TIME_LIMIT_S) == -signal.SIGTERM
        else:
            assert process.wait(TIME_LIMIT_S) == 0
            assert process.stdout.read().startswith("Waited in vain for 2 processes to meet at")


def test_tasks_of_slurm_that_do_not_know_each_other_are_refused(monkeypatch):
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    with pytest.raises(UserError, match="2 tasks"), ranks.join_ranks("cpu", 8):
        pass
