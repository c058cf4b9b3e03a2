"""The paper's tables from hand-made results: what is counted, which learning rate, and the forms."""

import json
from functools import partial
from pathlib import Path

import pytest
from clozeworks.model.finetuning.paper import TABLES
from clozeworks.model.finetuning.paper_tables import Cell, as_csv, markdown, read_cells, write_table
from clozeworks.model.finetuning.results import read_results
from clozeworks.model.finetuning.server_zip import write_server_zip
from clozeworks.pipeline.errors import UserError

HEADER = "task,variant,checkpoint,seed,learning_rate"


def write_runs(folder: Path, task: str, metrics: str, *runs: str) -> None:
    folder.mkdir(parents=True)
    lines = (f"{task},,e,{index},{run},1.0" for index, run in enumerate(runs))
    (folder / "results.csv").write_text("\n".join([f"{HEADER},{metrics},seconds", *lines]) + "\n")


def write_encoder(folder: Path, perplexity: float) -> None:
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(
        json.dumps({"status": "finished", "final": {"perplexity": perplexity}})
    )


def test_a_cell_is_the_median_over_both_kinds_of_seeds_at_the_best_learning_rate(tmp_path: Path):
    metrics = "f1,accuracy"
    # By F1 the other rate would be better: the table's metric decides, which is accuracy.
    write_runs(
        tmp_path / "full/0/mrpc", "mrpc", metrics, "1e-4,0.5,0.70", "1e-4,0.5,0.60", "5e-5,0.9,0.61"
    )
    write_runs(
        tmp_path / "full/1/mrpc", "mrpc", metrics, "1e-4,0.5,0.68", "5e-5,0.9,0.99", "5e-5,0.9,0.10"
    )
    write_runs(tmp_path / "no-nsp/0/squad", "squad", "exact_match,f1", "5e-5,20.0,28.25")
    write_runs(tmp_path / "own/0/rte", "rte", "accuracy", "5e-5,0.5", "3e-5,0.5")
    assert read_cells(tmp_path, "5") == [
        Cell("full", "mrpc", "accuracy", 1e-4, 3, 68.0, 60.0, 70.0, 86.7),
        Cell("no-nsp", "squad", "f1", 5e-5, 1, 28.25, 28.25, 28.25, 87.9),
        Cell("own", "rte", "accuracy", 3e-5, 1, 50.0, 50.0, 50.0, None),
    ]


def test_perplexities_are_those_of_the_encoders_of_a_row(tmp_path: Path):
    write_runs(tmp_path / "6-768-12/0/sst2", "sst2", "accuracy", "5e-5,0.9")
    (tmp_path / "6-768-12/0/sst2/summary.json").write_text('{"status": "finished", "runs": 1}')
    for seed, perplexity in enumerate((5.0, 4.5, 4.7)):
        write_encoder(tmp_path / "6-768-12" / str(seed) / "encoder", perplexity)
    cells = read_cells(tmp_path, "6")
    assert cells[1] == Cell("6-768-12", "perplexity", "perplexity", None, 3, 4.7, 4.5, 5.0, 4.68)
    assert "| 6-768-12 | 4.7 [4.5, 5.0] | 4.68 |" in markdown(cells, "6")
    assert "of 1 to 3 runs, in percent, perplexity aside." in markdown(cells, "6")


def test_starts_have_columns_of_their_own_tasks_and_no_figures_of_the_paper(tmp_path: Path):
    for row, score in (("random", 0.1), ("other", 0.7), ("pre-trained", 0.6)):
        write_runs(tmp_path / row / "0/stsb", "stsb", "pearson,spearman", f"1e-4,0.9,{score}")
    lines = markdown(read_cells(tmp_path, "starts"), "starts").splitlines()
    assert lines[2:] == [
        "|  | STS-B |",
        "| --- | ---: |",
        "| pre-trained | 60.0 |",
        "| random weights | 10.0 |",
        "| other | 70.0 |",
        "",
        "Median [lowest, highest] of 1 run, in percent.",
    ]
    with pytest.raises(UserError, match=r"run examples/compare/recipe\.toml"):
        read_cells(tmp_path / "random" / "0", "starts")


def test_the_forms_hold_the_same_cells(tmp_path: Path):
    write_runs(tmp_path / "80-10-10/0/ner", "ner", "f1", "5e-5,0.5", "5e-5,0.6")
    cells = read_cells(tmp_path, "8")
    files = write_table(cells, "8", str(tmp_path / "table8"))
    assert [Path(file).suffix for file in files] == [".md", ".csv", ".png"]
    text = Path(files[0]).read_text()
    assert "| 80-10-10 |  | 84.2 | 55.0 [50.0, 60.0] | 95.4 |  | 94.9 |" in text
    assert (
        Path(files[1]).read_text()
        == as_csv(cells)
        == (f"{','.join(Cell._fields)}\n80-10-10,ner,f1,5e-05,2,55.0,50.0,60.0,95.4\n")
    )


def test_steps_are_columns_in_order(tmp_path: Path):
    for step in (2000, 10000, 500):
        write_runs(tmp_path / "masked-lm/0" / str(step), "rte", "accuracy", "5e-5,0.5")
    write_runs(tmp_path / "masked-lm/0/sst2", "sst2", "accuracy", "5e-5,0.5")
    lines = markdown(read_cells(tmp_path, "figure5"), "figure5").splitlines()
    assert lines[2] == "|  | 500 | 2000 | 10000 |"


def test_every_row_of_the_paper_has_a_figure_for_every_column():
    for table in (table for name, table in TABLES.items() if name != "starts"):
        assert all(len(row.values) == len(table.columns) for row in table.rows.values()), (
            table.title
        )


def test_mistakes_are_named(tmp_path: Path):
    with pytest.raises(
        UserError, match=r"`clozeworks run examples/paper/table7\.toml --output .*` writes them\.$"
    ):
        read_cells(tmp_path, "7")
    for read in (
        read_results,
        partial(read_cells, name="7"),
        partial(write_server_zip, output="a.zip"),
    ):
        with pytest.raises(UserError, match=r"nothere does not exist\.$"):
            read(tmp_path / "nothere")
    write_runs(tmp_path / "full/0/mrpc", "mrpc", "f1", "1e-4,0.5")
    with pytest.raises(UserError, match="has no accuracy, which table 5 shows; it has f1"):
        read_cells(tmp_path, "5")
