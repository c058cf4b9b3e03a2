"""The examples of docs/finetuning.md for sentence vectors run on a folder that pretrain wrote."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "finetuning.md"
TEXTS = ["a cat sat", "a cat was sitting", "a dog ran", "the sea is blue"]


@pytest.mark.slow
def test_sentence_transformers_trains_a_runs_folder_as_the_page_says(tmp_path: Path):
    pytest.importorskip("sentence_transformers", reason="needs sentence-transformers")
    section = PAGE.read_text(encoding="utf-8").split("## Sentence vectors\n")[1].split("\n## ")[0]
    blocks = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    shutil.copytree(ROOT / "examples" / "model", tmp_path / "run")
    rows = [
        {"sentence1": one, "sentence2": other, "score": float(one == other)}
        for one in TEXTS
        for other in TEXTS
    ]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    (tmp_path / "script.py").write_text("\n".join(blocks))
    own = {"HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert len(blocks) == 2
    assert "tensor(" in ended.stdout.splitlines()[-1]
    assert (tmp_path / "scored" / "model" / "modules.json").is_file()
