"""The logs of a run: what a resumed run keeps of them."""

from clozeworks.model.training.logs import RunLog


def test_a_resumed_run_keeps_the_lines_up_to_its_checkpoint(tmp_path):
    for first_step in (-1, 1_234_567):
        with RunLog(tmp_path, first_step) as log:
            for step in (1_234_567, 1_234_568):
                log.speed(step, {"step": step, "data_wait": 0.5})
    lines = (tmp_path / "speed.csv").read_text().splitlines()[1:]
    assert lines == [f"{step},,,0.5,," for step in (1_234_567, 1_234_567, 1_234_568)]
