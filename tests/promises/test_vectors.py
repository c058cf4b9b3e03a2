"""The example of `RunInference` on the graph of an encoder: the vectors of `transformers`."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
import transformers

from tests.fixtures.checkpoint_fixture import make_checkpoint

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "beam" / "vectors.py"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the exporter, about itself
def test_vectors_are_those_of_transformers(tmp_path: Path):
    for module in ("onnx", "onnxruntime", "onnxscript"):
        pytest.importorskip(module, reason=f"{module} is not installed")
    texts = ["a book.", "the film is not very good, a dull book is not bad."]
    encoder = make_checkpoint(tmp_path / "encoder")
    model: Any = transformers.AutoModel.from_pretrained(encoder).eval()
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(encoder)
    batch = dict(tokenizer(texts, padding=True, return_tensors="pt"))
    sizes: Any = {name: {0: "batch", 1: "length"} for name in batch}
    names = {"input_names": list(batch), "output_names": ["last_hidden_state"]}
    graph: Any = torch.onnx.export(model, kwargs=batch, dynamic_shapes=sizes, dynamo=True, **names)
    graph.save(encoder / "model.onnx")
    for name, text in zip("ab", texts, strict=True):
        (tmp_path / f"{name}.txt").write_text(text)
    options = [f"--graph={encoder}", f"--source={tmp_path}/[ab].txt", f"--output={tmp_path}/rows"]
    subprocess.run([sys.executable, str(PROGRAM), *options], check=True, capture_output=True)
    rows = pq.read_table(*tmp_path.glob("rows*.parquet")).sort_by("doc_id").to_pylist()
    for row, text in zip(rows, texts, strict=True):
        states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        assert row["vector"] == pytest.approx(states.mean(0).tolist(), abs=1e-5)
