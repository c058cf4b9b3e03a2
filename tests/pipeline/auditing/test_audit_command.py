"""The command `audit`: what it prints, its exit code, and damaged shards in one line."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clozeworks.cli.main import main
from clozeworks.pipeline.auditing.checks import audit as audit_directory
from clozeworks.pipeline.config import BuildConfig, IngestConfig, VocabConfig
from clozeworks.pipeline.errors import UserError

from tests.fixtures.audit_fixture import build, mask_separator, spoil, write_directory
from tests.fixtures.command_fixture import error_of
from tests.fixtures.stages_fixture import Configs, make_stages


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("input_ids", [2, 50_000, 3], "contains token 50000, but its vocabulary has"),
        ("masked_lm_positions", [-1], "Integer value -1 not in range"),
        ("masked_lm_ids", [9, 9, 9], "different lengths"),
        ("input_ids", [2, None, 3], "a value is missing"),
        ("segment_b_start", 1 << 40, "not in range"),
        ("document_a", None, "a value is missing"),
    ],
)
def test_values_out_of_range_are_one_error_naming_shard_and_column(
    name, value, fault, tmp_path, capsys
):
    manifest = build(tmp_path, 20)
    path = tmp_path / manifest["shards"][0]["name"]
    table = pq.read_table(path)
    planted = pa.array(
        [value] * len(table), pa.list_(pa.int64()) if isinstance(value, list) else pa.int64()
    )
    pq.write_table(table.set_column(table.column_names.index(name), name, planted), path)
    directory = write_directory(tmp_path, manifest)
    for command in ("audit", "show"):
        error = error_of(capsys, command, directory)
        assert f"{path} cannot be read as instances" in error
        assert name in error
        assert fault in error


@pytest.mark.slow
def test_the_command_line_passes_and_writes_what_it_measured(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    directory = write_directory(tmp_path, build(tmp_path, masking="whole-word"))
    main(["audit", directory, "--json"])
    measured = json.loads(capsys.readouterr().out)
    assert measured[directory]["ok"]
    report = tmp_path / "new" / "report.html"
    main(["audit", directory, f"--report={report}"])
    table = capsys.readouterr().out
    assert "partly masked words" in table
    assert f"{report}\n" in table.replace(" ", "")
    page = report.read_text()
    assert f"<b>{tmp_path.name}</b>" in page
    assert str(tmp_path) not in page  # no path of this machine


def test_the_command_line_ends_with_1_naming_what_is_out_of_tolerance(tmp_path, capsys):
    manifest = build(tmp_path)
    spoil(tmp_path, manifest, mask_separator)
    directory = write_directory(tmp_path, manifest)
    with pytest.raises(SystemExit) as ended:
        main(["audit", directory, "--json"])
    assert ended.value.code == 1
    captured = capsys.readouterr()
    assert not json.loads(captured.out)[directory]["ok"]
    sentence = json.loads(captured.out)[directory]["sentence"]
    assert captured.err == f"{sentence}\n"
    assert "masks on [CLS] or [SEP] 1 (expected 0)" in sentence


@pytest.mark.slow
def test_a_report_that_cannot_be_written_is_one_line(tmp_path, capsys):
    directory = write_directory(tmp_path, build(tmp_path, 20))
    error = error_of(capsys, "audit", directory, f"--report={tmp_path}")
    assert error == f"Error: {tmp_path} is not a regular file; choose another path.\n"
    assert not list(tmp_path.parent.glob(f"{tmp_path.name}.*"))


@pytest.mark.slow
def test_origins_are_looked_up_in_documents_beside_the_instances(tmp_path: Path):
    texts = tmp_path / "texts"
    texts.mkdir()
    for number in range(60):
        sentences = [f"Text {number} has the sentence {i}, and it is fine." for i in range(20)]
        (texts / f"{number}.txt").write_text(" ".join(sentences))
    configs = Configs(IngestConfig(language="en"), VocabConfig(size=200), BuildConfig(duplicates=2))
    make_stages(texts, tmp_path, configs)
    instances = str(tmp_path / "instances")

    def verdict(documents: str | None = None) -> str:
        checks = {each.name: each for each in audit_directory(instances, documents).checks}
        return checks["AUC of source for the label"].measured

    assert verdict() == "0.500"
    documents = (tmp_path / "documents").rename(tmp_path / "texts" / "documents")
    assert verdict() == "unknown"
    assert verdict(str(documents)) == "0.500"
    others = tmp_path / "others"
    main(["ingest", *map(str, sorted(texts.glob("1*.txt"))), "--output", str(others)])
    with pytest.raises(UserError, match=r"instances was not built from .*/others, but from other"):
        audit_directory(instances, str(others))


def test_short_words_that_end_sentences_are_listed(capsys, tmp_path: Path):
    for number in range(12):
        text = f"The town no {number} has a zzb. Old mill by the sea {number}. It is by the lake."
        (tmp_path / f"{number}.txt").write_text(f"{text} No lake is as old as number {number}.")
    documents = tmp_path / "documents"
    sources = map(str, sorted(tmp_path.glob("*.txt")))
    main(["ingest", *sources, "--output", str(documents), "--min-characters", "1"])
    capsys.readouterr()
    main(["audit", str(documents)])
    assert " zzb. (" in capsys.readouterr().out
    for line in ("--json", "--verify --json", "--verify --report r.html", "--documents nowhere"):
        error = error_of(capsys, "audit", str(documents), *line.split())
        assert "audit judges instances" in error
    line = ("--against", str(tmp_path / "0.txt"), "--report", "r.html")
    assert "--report and --documents are for" in error_of(capsys, "audit", str(documents), *line)
