"""A second process on the same output is refused, and what is read is not overwritten."""

import sys
from pathlib import Path
from types import ModuleType

import pytest
from clozeworks.cli.main import main
from clozeworks.model.pretraining import pretrain as pretraining
from clozeworks.pipeline.config import IngestConfig, RunOptions
from clozeworks.pipeline.documents.pipeline import ingest
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.execution import runner
from clozeworks.pipeline.storage.directory import locked

from tests.fixtures.checkpoint_fixture import make_checkpoint
from tests.fixtures.instances_fixture import write_instances
from tests.fixtures.process_fixture import held

pytestmark = pytest.mark.slow

TINY = "--epochs 0.1 --max-length 24 --device cpu"
# What is locked, the command, and options that change what it writes.
COMMANDS = {
    "ingest": ("OUT", "ingest TEXTS --output OUT --workers 1", "--seed 7"),
    "vocab": ("OUT", "vocab DOCUMENTS --output OUT --size 150 --workers 1", "--num-unused 3"),
    "build": ("OUT", "build DOCUMENTS --vocab ROWS --output OUT --workers 1", "--seed 7"),
    "audit": ("WORK", "audit ROWS --report OUT", ""),
    "pretrain": ("OUT", "pretrain ROWS --output OUT --model tiny --steps 1 --device cpu", ""),
    "finetune": ("OUT", f"finetune sst2 DATA --checkpoint MODEL --output OUT {TINY}", ""),
    "features": ("WORK", "features MODEL TEXT --output OUT --device cpu", "--per text"),
    "predict": ("WORK.tsv", "predict TASK TEXT --output OUT.tsv --device cpu", ""),
    "predict --official": ("OUT", "predict TASK TEST --output OUT --official --device cpu", ""),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("inputs")
    for name in ("texts", "data"):
        (folder / name).mkdir()
    for number in range(20):
        (folder / "texts" / f"{number}.txt").write_text(
            f"The film was good. Book {number} was not very bad. " * 9
        )
    (folder / "text.txt").write_text("the film was good\nthe book was bad\n")
    for name in ("train", "dev"):
        (folder / "data" / f"{name}.tsv").write_text(
            "sentence\tlabel\n" + "a good film\t1\na bad book\t0\n" * 8
        )
    ingest(
        [str(folder / "texts")], str(folder / "documents"), IngestConfig(), RunOptions(workers=1)
    )
    write_instances(folder / "rows")
    make_checkpoint(folder / "model")
    paths = {
        name.upper(): str(folder / name) for name in ("texts", "data", "documents", "rows", "model")
    }
    (folder / "test.tsv").write_text("index\tsentence\n0\ta good film\n")
    paths |= {"TEXT": str(folder / "text.txt"), "TEST": str(folder / "test.tsv")}
    paths["TASK"] = str(folder / "task")
    # 1 if it is no better than a constant answer, which its examples do not decide.
    assert run(COMMANDS["finetune"][1], {**paths, "OUT": paths["TASK"]}) in (0, 1)
    return paths


def run(command: str, paths: dict[str, str]) -> int:
    """Run a command line whose words in capitals stand for paths; return the exit code."""
    try:
        main([paths.get(word, word) for word in command.split()])
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


@pytest.mark.parametrize("name", COMMANDS)
def test_a_second_start_is_refused(
    name: str, inputs: dict[str, str], tmp_path: Path, capsys, monkeypatch
):
    monkeypatch.setattr(sys, "argv", ["clozeworks"])
    output, command, others = COMMANDS[name]
    paths = {**inputs, "OUT": str(tmp_path / "out"), "OUT.tsv": str(tmp_path / "out.tsv")}
    paths |= {"WORK": str(tmp_path / ".out.work"), "WORK.tsv": str(tmp_path / ".out.tsv.work")}
    starts = [command, f"{command} {others}"]
    starts += [f"{command} --overwrite"] if "overwrite" in _options(name) else []
    with held(paths[output]):
        for start in starts:
            capsys.readouterr()
            assert run(start, paths) == 2
            reported = capsys.readouterr().err.splitlines()[-1]
            assert reported.startswith("Error: Another process is writing ")
            assert paths["OUT"] in reported
    # These instances do not pass the audit, and the model may be no better than a constant answer.
    may_fail = name in ("audit", "finetune")
    assert run(command, paths) in ((0, 1) if may_fail else (0,))
    assert [str(path) for path in tmp_path.glob("out*")] == [paths[output.replace("WORK", "OUT")]]
    assert not list(tmp_path.rglob("*.work")) and not list(tmp_path.rglob("tmp"))


def _options(name: str) -> set[str]:
    from clozeworks.cli.main import commands

    return {str(parameter.name) for parameter in commands.commands[name.split()[0]].params}


@pytest.mark.parametrize(
    ("command", "module", "name", "read"),
    [
        ("vocab", runner, "run_planned", "DOCUMENTS"),
        ("build", runner, "run_planned", "DOCUMENTS"),
        ("pretrain", pretraining, "start", "ROWS"),
    ],
)
def test_what_is_read_is_not_overwritten(
    command: str,
    module: ModuleType,
    name: str,
    read: str,
    inputs: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    class SeenError(Exception):
        pass

    def while_it_reads(*_: object) -> None:
        refused = pytest.raises(UserError, match=f"is reading {inputs[read]}")
        with refused, locked(inputs[read]):
            pass
        raise SeenError

    monkeypatch.setattr(module, name, while_it_reads)
    with pytest.raises(SeenError):
        run(COMMANDS[command][1], {**inputs, "OUT": str(tmp_path / "out")})
    with locked(inputs[read]):
        pass
