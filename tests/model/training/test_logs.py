"""The logs of a run: what a resumed run keeps of them."""

from clozeworks.model.training.logs import RunLog


def test_a_resumed_run_keeps_the_lines_up_to_its_checkpoint(tmp_path):
    for first_step in (-1, 1_234_567):
        with RunLog(tmp_path, first_step) as log:
            for step in (1_234_567, 1_234_568):
                log.speed(step, {"step": step, "data_wait": 0.5})
    lines = (tmp_path / "speed.csv").read_text().splitlines()[1:]
    assert lines == [f"{step},,,0.5,," for step in (1_234_567, 1_234_567, 1_234_568)]


def test_columns_may_be_added_and_dropped(tmp_path):
    for columns in (("step", "split", "loss"), ("step", "split", "loss", "accuracy"), ("step", "split", "loss")):
        with RunLog(tmp_path, 1, columns) as log:
            log.metrics(1, "train", {"loss": 0.5, "accuracy": 0.25})
    assert (tmp_path / "metrics.csv").read_text().splitlines() == ["step,split,loss", *["1,train,0.5"] * 3]
