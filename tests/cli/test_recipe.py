"""Recipes: variables, matrices, and what `clozeworks run` does with the stages."""

import json
from pathlib import Path

import pytest
from clozeworks.cli.main import main
from clozeworks.cli.recipe import Stage, read_recipe
from clozeworks.pipeline.errors import UserError

RECIPE = """
[variables]
steps = 300
seeds = [0, 1]
rates = [1e-3, 2e-3]
run = "{output}/run"
fresh = false

[[stage]]
name = "encode"
command = "pretrain"
matrix = { kind = ["full", "none"], seed = "{seeds}" }
arguments = ["instances-{kind}"]
output = "{run}-{kind}-{seed}"
steps = "{steps}"
seed = "{seed}"
overwrite = "{fresh}"

[[stage]]
command = "finetune"
arguments = ["classify", "{recipe}/tables"]
checkpoint = "{run}-full-0"
output = "{output}/task"
learning-rates = "{rates}"
if-exists = "{recipe}/tables"
"""


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    path = tmp_path / "study.toml"
    path.write_text(RECIPE)
    return str(path)


def options(stage: Stage) -> str:
    return " ".join(stage.args)


def test_a_matrix_is_a_stage_for_each_combination(recipe: str):
    stages = read_recipe(recipe, "out")
    assert [stage.title for stage in stages] == [
        *(f"encode-{k}-{s}" for k in ("full", "none") for s in (0, 1)),
        "finetune",
    ]
    assert (
        options(stages[3])
        == "instances-none --output out/run-none-1 --steps 300 --seed 1 --no-overwrite"
    )


def test_an_axis_can_set_several_variables_together(tmp_path: Path):
    path = tmp_path / "study.toml"
    stage = (
        'command = "finetune"\narguments = ["{task}", "glue/{folder}"]\noutput = "{task}-{seed}"\n'
    )
    path.write_text(
        f'[[stage]]\n{stage}matrix = {{ "task folder" = ["sst2 SST-2", "rte my RTE"], seed = [3] }}\n'
    )
    stages = read_recipe(str(path), "out")
    assert [stage.title for stage in stages] == ["finetune-sst2-3", "finetune-rte-3"]
    assert options(stages[1]) == "rte glue/my RTE --output rte-3"
    path.write_text(f'[[stage]]\n{stage}matrix = {{ "task folder" = ["sst2"], seed = [3] }}\n')
    with pytest.raises(UserError, match="matrix has 'task folder', but 'sst2' has 1 words"):
        read_recipe(str(path), "out")


def test_variables_are_lists_flags_and_parts_of_text(recipe: str, tmp_path: Path):
    last = read_recipe(recipe, "out")[-1]
    folder = str(tmp_path / "tables")
    assert last.args == [
        "classify",
        folder,
        "--checkpoint",
        "out/run-full-0",
        "--output",
        "out/task",
        "--learning-rates",
        "0.001,0.002",
    ]
    assert last.if_exists == [folder]


def test_settings_go_over_files_and_files_over_the_recipe(recipe: str, tmp_path: Path):
    file = tmp_path / "gpu.toml"
    file.write_text("[study]\nsteps = 9000\nseeds = [7]\n[other]\nlayers = 2\n")
    stages = read_recipe(recipe, "out", (str(file),), ("seeds=4,5", "fresh=true"))
    assert [stage.combination for stage in stages[:4]] == ["full-4", "full-5", "none-4", "none-5"]
    assert "--steps 9000" in options(stages[0]) and options(stages[0]).endswith("--overwrite")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("step=3",), "--set: the recipe has no variable 'step'; did you mean steps."),
        (("steps",), "--set steps: give NAME=VALUE."),
    ],
)
def test_settings_that_fit_nothing(settings: tuple[str, ...], message: str, recipe: str):
    with pytest.raises(UserError, match=f"^{message}$"):
        read_recipe(recipe, "out", settings=settings)


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        (
            'command = "vocab"\nseed = "{sed}"',
            "stage 1 (vocab), seed: there is no variable {sed}; choose from recipe, output.",
        ),
        ('command = "vocab"\nmatrix = [1]', "stage 1 (vocab): matrix is not a table of lists."),
        (
            'command = "brew"',
            "stage 'brew': there is no command 'brew'; choose from ingest, vocab, build",
        ),
        (
            'command = "vocab"\narguments = ["d"]\noutput = "o"\nsizes = 3',
            "stage 'vocab': No such option '--sizes'. Did you mean '--size'?",
        ),
        (
            'command = "vocab"\narguments = ["d"]\noutput = "o"\nsize = "x"',
            "'x' is not a valid integer.",
        ),
        (
            'command = "build"\narguments = ["d"]\nvocab = "v"\noutput = "o"\nmask-rate = 3',
            "--mask-rate is 3",
        ),
        (
            'command = "finetune"\narguments = ["mprc", "d"]\ncheckpoint = "c"\noutput = "o"',
            "stage 'finetune': There is no task 'mprc'; did you mean mrpc.",
        ),
    ],
)
def test_all_stages_are_checked_before_the_first_runs(
    stage: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    path = tmp_path / "r.toml"
    fine = (
        '[[stage]]\ncommand = "results"\narguments = ["nothing"]\n'
        if "stage 1" not in message
        else ""
    )
    path.write_text(f"{fine}[[stage]]\n{stage}\n")
    with pytest.raises(SystemExit) as ended:
        main(["run", str(path), "--output", "out"])
    printed = capsys.readouterr()
    assert ended.value.code == 2 and printed.out == ""
    assert message in printed.err and printed.err.count("\n") == 1


def test_a_dry_run_prints_commands_as_typed(recipe: str, capsys: pytest.CaptureFixture[str]):
    main(
        [
            "run",
            recipe,
            "--output",
            "an out",
            "--dry-run",
            "--only",
            "encode-full-1",
            "--only",
            "finetune",
        ]
    )
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(
        "[1/2] clozeworks pretrain instances-full --output 'an out/run-full-1' --steps 300"
    )
    assert second.startswith("[2/2] finetune: skipped, ") and second.endswith(
        "tables does not exist"
    )
    with pytest.raises(SystemExit):
        main(["run", recipe, "--only", "encod"])
    assert "has no such stage; did you mean encode." in capsys.readouterr().err


def test_keep_going_runs_the_rest_and_lists_what_failed(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
):
    path = tmp_path / "r.toml"
    stages = [
        f'[[stage]]\ncommand = "vocab"\nname = "{name}"\narguments = ["{tmp_path}"]\noutput = "o"\n'
        for name in "ab"
    ]
    path.write_text("".join(stages))
    with pytest.raises(SystemExit) as ended:
        main(["run", str(path), "--keep-going"])
    printed = capfd.readouterr()
    assert ended.value.code == 1 and printed.out.count("clozeworks vocab") == 2
    *failed, error = printed.err.splitlines()
    assert [line.partition(":")[0] for line in failed] == ["a failed", "b failed"]
    assert error == "Error: 2 of 2 stages failed: a, b."
    with pytest.raises(SystemExit):
        main(["run", str(path)])
    assert capfd.readouterr().out.count("clozeworks vocab") == 1


def test_an_option_that_may_be_repeated_takes_a_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "r.toml"
    path.write_text(
        '[[stage]]\ncommand = "vocab"\narguments = ["d"]\noutput = "v"\ncompare = ["a", "b"]\nsize = 300\n'
    )
    main(["run", str(path), "--dry-run"])
    assert (
        capsys.readouterr().out
        == "[1/1] clozeworks vocab d --output v --compare a --compare b --size 300\n"
    )


def test_a_stage_takes_its_options_from_a_table_of_its_config(tmp_path: Path):
    documents = (
        {"id": str(index), "text": f"There are {index}. All of them are here."}
        for index in range(9)
    )
    (tmp_path / "texts.jsonl").write_text(
        "".join(json.dumps(document) + "\n" for document in documents)
    )
    (tmp_path / "c.toml").write_text(
        "[build]\nseed = 1\n[ingest]\nlanguage = 'en'\nmin-characters = 1\nvalidation-share = 0.5\n"
    )
    path = tmp_path / "r.toml"
    stage = f'[[stage]]\ncommand = "ingest"\narguments = ["{tmp_path}/texts.jsonl"]\noutput = "{tmp_path}/d"\n'
    path.write_text(
        f'{stage}config = "{tmp_path}/c.toml"\n[[stage]]\ncommand = "show"\narguments = ["{tmp_path}/d"]\n'
    )
    main(["run", str(path)])
    assert (
        json.loads((tmp_path / "d" / "manifest.json").read_text())["config"]["validation_share"]
        == 0.5
    )
