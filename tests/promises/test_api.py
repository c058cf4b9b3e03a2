"""The Python API: its names and signatures are frozen, importing it is cheap, and the examples in
docs/api.md run.
"""

import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import clozeworks.model
import clozeworks.pipeline
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "api.md"
QUICKSTART = ROOT / "examples" / "quickstart"
NUM_BOOKS = 4

CLASS = None
"""Not frozen here: the fields of a config are the options of its command; the others are results.
"""
PIPELINE = {
    "Audit": CLASS,
    "BuildConfig": CLASS,
    "BuildInstances": "documents, vocab, output, config=None",
    "CorpusManifests": "documents, vocabulary, instances",
    "Counters": "",
    "Ingest": "sources, output, config=None, max_bad=0.05",
    "IngestConfig": CLASS,
    "LearnVocabulary": "documents, output, config=None",
    "RawDocument": "*, id, source, title, language, paragraphs, is_cut=False",
    "ReadDocuments": "sources, config=None",
    "RunOptions": CLASS,
    "UserError": CLASS,
    "VocabConfig": CLASS,
    "Vocabulary": CLASS,
    "audit": "instances, documents=None",
    "build": "documents, vocab, output, config, options, progress=None",
    "ingest": "sources, output, config, options, progress=None",
    "learn_vocabulary": "documents, output, config, options, progress=None",
    "make_corpus": (
        "sources, output, ingest_config, vocab_config, build_config, options, progress=None"
    ),
    "read_documents": "sources, config=None, counters=None",
    "read_vocabulary": "path",
}
MODEL = {
    "BertForPreTraining": "config",
    "BertModel": "config",
    "Classification": CLASS,
    "EntityRecognition": CLASS,
    "Feature": CLASS,
    "FinetuneConfig": CLASS,
    "InstanceDataset": (
        "path, split='train', *, batch_size, seed=0, epochs=None, rank=0, num_ranks=1"
    ),
    "ModelConfig": CLASS,
    "ModernBertConfig": CLASS,
    "ModernBertForMaskedLM": "config",
    "PretrainConfig": CLASS,
    "SequenceClassifier": "config, num_outputs",
    "SpanClassifier": "config",
    "Squad": CLASS,
    "StopRequest": CLASS,
    "Task": CLASS,
    "TaskBatch": CLASS,
    "TaskModel": CLASS,
    "collate": "rows, *, local_attention=128, flatten=False",
    "evaluate": "run, instances, split='validation', device='auto', batch_size=None",
    "evaluate_task": "directory, data, device='auto', task=None",
    "finetune": (
        "task, data, checkpoint, output, config, progress=None, *, overwrite=False, stop=None"
    ),
    "make_task": "name, data, **options",
    "predict": "directory, data, output, device='auto', *, official=False, task=None",
    "pretrain": "config, instances, output, progress=None, *, overwrite=False, stop=None",
    "read_model": "directory",
}


def parameters(exported: Any) -> str:
    """Return the parameters of a function or class, without types."""
    signature = inspect.signature(exported)
    bare = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
    ]
    return str(inspect.Signature(bare))[1:-1]


@pytest.mark.parametrize(
    "package, names", [(clozeworks.pipeline, PIPELINE), (clozeworks.model, MODEL)]
)
def test_names_and_signatures_are_frozen(package: ModuleType, names: dict[str, str | None]):
    assert package.__all__ == list(names)
    assert set(names) <= set(dir(package))
    for name, expected in names.items():
        exported = getattr(package, name)
        assert exported.__name__ == name
        assert exported.__doc__, name
        if expected is not CLASS:
            assert parameters(exported) == expected, name
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = package.nothing


@pytest.mark.slow
def test_the_examples_of_the_page_run(tmp_path: Path):
    (tmp_path / "corpus").mkdir()
    for book in sorted((QUICKSTART / "corpus" / "books").glob("*.txt"))[:NUM_BOOKS]:
        shutil.copy(book, tmp_path / "corpus")
    shutil.copytree(QUICKSTART / "word-order", tmp_path / "word-order")
    blocks = re.findall(
        r"^(<!-- not run.*-->\n)?```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    script = tmp_path / "script.py"
    script.write_text("\n".join(code for not_run, code in blocks if not not_run))
    ended = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert len(blocks) == 10
    assert f"clozeworks.ingest documents_read {NUM_BOOKS}\n" in ended.stdout
    assert (tmp_path / "predictions.jsonl").read_text().count("\n") == 400
