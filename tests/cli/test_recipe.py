"""Recipes: variables, and what `clozeworks run` does with the stages."""

from pathlib import Path

import pytest
from clozeworks.cli.main import main
from clozeworks.cli.run import read_recipe
from clozeworks.pipeline.errors import UserError

RECIPE = """
[variables]
steps = 300
run = "{output}/run"
fresh = false

[[stage]]
command = "pretrain"
arguments = ["instances"]
output = "{run}-{steps}"
steps = "{steps}"
overwrite = "{fresh}"

[[stage]]
command = "finetune"
arguments = ["classify", "{recipe}/tables"]
checkpoint = "{run}-{steps}"
output = "{output}/task"
learning-rates = [1e-3, 2e-3]
"""


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    path = tmp_path / "study.toml"
    path.write_text(RECIPE)
    return str(path)


def write_recipe(folder: Path, *stages: str) -> str:
    path = folder / "r.toml"
    path.write_text("".join(f"[[stage]]\n{stage}\n" for stage in stages))
    return str(path)


def lines_of_dry_run(capsys: pytest.CaptureFixture[str], recipe: str, *args: str) -> list[str]:
    main(["run", recipe, "--dry-run", *args])
    return capsys.readouterr().out.splitlines()


def test_variables_are_filled_in_and_may_name_those_above(recipe: str, tmp_path: Path):
    first, second = read_recipe(recipe, "out").values()
    assert first == {
        "command": ["pretrain"], "arguments": ["instances"], "output": ["out/run-300"],
        "steps": ["300"], "overwrite": ["false"],
    }  # fmt: skip
    assert second["arguments"] == ["classify", str(tmp_path / "tables")]
    assert second["learning-rates"] == ["0.001", "0.002"]


def test_settings_replace_the_recipes_variables(recipe: str):
    settings = ("steps=9000", "fresh=true", "run=r={steps}")
    first, second = read_recipe(recipe, "out", settings).values()
    assert first["output"] == second["checkpoint"] == ["r=9000-9000"]
    assert (first["steps"], first["overwrite"]) == (["9000"], ["true"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("step=3",), "--set: the recipe has no variable 'step'; did you mean steps."),
        (("steps",), "--set steps: give NAME=VALUE."),
    ],
)
def test_settings_that_fit_nothing(settings: tuple[str, ...], message: str, recipe: str):
    with pytest.raises(UserError, match=f"^{message}$"):
        read_recipe(recipe, "out", settings)


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ('command = "vocab"\nseed = "{sed}"', "stage 2 (vocab), seed: there is no variable {sed};"),
        ('command = "run"\narguments = ["r.toml"]', "stage 2 (run): there is no command 'run';"),
        (
            'command = "vocab"\narguments = ["d"]\noutput = "o"\nsizes = 3',
            "stage 2 (vocab): No such option '--sizes'.",
        ),
        (
            'command = "build"\narguments = ["d"]\nvocab = "v"\noutput = "o"\nmask-rate = 3',
            "--mask-rate is 3",
        ),
        (
            'command = "finetune"\narguments = ["mprc", "d"]\ncheckpoint = "c"\noutput = "o"',
            "stage 2 (finetune): There is no task 'mprc'; did you mean mrpc.",
        ),
        ('command = "vocab"\nmatrix = {seed = [1]}', "stage[1][...]: expected bool | int | float"),
    ],
)
def test_all_stages_are_checked_before_the_first_runs(
    stage: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    path = write_recipe(tmp_path, 'command = "results"\narguments = ["nothing"]', stage)
    with pytest.raises(SystemExit) as ended:
        main(["run", path, "--output", "out"])
    printed = capsys.readouterr()
    assert ended.value.code == 2 and printed.out == ""
    assert message in printed.err and printed.err.count("\n") == 1


def test_a_dry_run_prints_commands_as_typed(recipe: str, capsys: pytest.CaptureFixture[str]):
    first, second = lines_of_dry_run(capsys, recipe, "--output", "an out")
    assert first == (
        "[1/2] clozeworks pretrain instances --output 'an out/run-300' --steps 300"
    )  # --overwrite has no --no-overwrite
    assert second.startswith("[2/2] clozeworks finetune classify ")
    assert second.endswith(" --learning-rates 0.001,0.002")


def test_options_that_are_true_false_repeated_or_of_several_values(capsys, tmp_path: Path):
    stages = (
        'command = "vocab"\narguments = ["d"]\noutput = "v"\ncompare = ["a", "b"]\ncased = true\n'
        "strip-accents = false",
        'command = "pretrain"\narguments = ["i"]\noutput = "r"\n'
        'compile = false\ndynamic-masking = "token"\nmask-split = [80, 10, 10]',
    )
    lines = lines_of_dry_run(capsys, write_recipe(tmp_path, *stages))
    assert lines == [
        "[1/2] clozeworks vocab d --output v --compare a --compare b --cased --keep-accents",
        "[2/2] clozeworks pretrain i --output r --no-compile --dynamic-masking token "
        "--mask-split 80,10,10",
    ]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("documents=file", "give --documents line or blank-line; to keep short documents, lower "),
        ("documents=lin", "'--documents': 'lin' is not one of 'auto', 'file', 'blank-line', "),
        ("language=e", "--language is e, which is not the code of a language: give one such as "),
    ],
)
def test_a_fault_names_the_stage_and_the_option(
    setting: str, message: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
):
    (tmp_path / "text.txt").write_text("A cat sat on the mat.\n\nA dog lay there.\n")
    recipe = str(Path(__file__).parents[2] / "examples/recipes/1-million-words.toml")
    args = ["--set", f"text={tmp_path}/text.txt", "--set", setting, "--output", str(tmp_path)]
    with pytest.raises(SystemExit) as ended:
        main(["run", recipe, *args])
    error = capfd.readouterr().err
    assert ended.value.code == 2
    assert error.startswith(f"Error: {recipe}: stage 1 (ingest): ") and message in error


def test_a_failed_stage_ends_the_recipe(capfd: pytest.CaptureFixture[str], tmp_path: Path):
    stage = f'command = "vocab"\narguments = ["{tmp_path}"]\noutput = "o"'
    with pytest.raises(SystemExit) as ended:
        main(["run", write_recipe(tmp_path, stage, stage)])
    printed = capfd.readouterr()
    assert ended.value.code == 2
    assert printed.out.count("clozeworks vocab") == printed.err.count("\n") == 1
