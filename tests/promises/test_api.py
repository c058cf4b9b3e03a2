"""The Python API: names and signatures are frozen, and the examples in docs/api.md run."""

import inspect
import json
import re
import runpy
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import clozeworks.model
import clozeworks.pipeline
import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
QUICKSTART = ROOT / "examples" / "quickstart"
NUM_BOOKS = 4

CLASS = None
"""Not frozen here: the fields of a config are the options of its command; the others are results.
"""
PIPELINE = {
    **dict.fromkeys(
        (
            *("Audit", "BuildConfig", "IngestConfig", "RunOptions", "UserError", "VocabConfig"),
            "Vocabulary",
        ),
        CLASS,
    ),
    "BuildInstances": "documents, vocab, output, config=None",
    "CorpusManifests": "documents, vocabulary, instances",
    "Counters": "",
    "Ingest": "sources, output, config=None, max_bad=0.05",
    "LearnVocabulary": "documents, output, config=None",
    "RawDocument": "*, id, source, title, language, paragraphs, is_cut=False",
    "ReadDocuments": "sources, config=None",
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
    **dict.fromkeys(
        (
            *("Classification", "EncoderConfig", "EntityRecognition", "Feature", "FinetuneConfig"),
            *("ModelConfig", "ModernBertConfig", "PretrainConfig", "Squad", "StopRequest", "Task"),
            *("TaskBatch", "TaskModel"),
        ),
        CLASS,
    ),
    "BertForPreTraining": "config",
    "BertModel": "config",
    "InstanceDataset": (
        "path, split='train', *, batch_size, seed=0, epochs=None, rank=0, num_ranks=1"
    ),
    "ModernBertForMaskedLM": "config",
    "SequenceClassifier": "config, num_outputs",
    "SpanClassifier": "config",
    "collate": "rows, *, local_attention=128, flatten=False",
    "evaluate": "run, instances, split='validation', device='auto', batch_size=None",
    "evaluate_task": "directory, data, device='auto', task=None",
    "finetune": (
        "task, data, checkpoint, output, config, progress=None, *, overwrite=False, stop=None"
    ),
    "make_task": "name, data, **options",
    "predict": "directory, data, output, device='auto', *, official=False, columns=None, "
    "text=None, task=None",
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
    assert package.__all__ == sorted(names)
    assert set(names) <= set(dir(package))
    for name, expected in names.items():
        exported = getattr(package, name)
        assert exported.__name__ == name
        assert exported.__doc__, name
        if expected is not CLASS:
            assert parameters(exported) == expected, name
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = package.nothing


def run_blocks(text: str) -> int:
    """Run the blocks of Python in a page's text as one script; return how many there are."""
    pattern = r"^(<!-- not run.*-->\n)?```python\n(.*?)^```$"
    blocks = re.findall(pattern, text, re.MULTILINE | re.DOTALL)
    Path("script.py").write_text("\n".join(code for not_run, code in blocks if not not_run))
    runpy.run_path("script.py", run_name="__main__")
    return len(blocks)


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# Other libraries warn of each other.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_examples_of_the_page_run(in_folder: Path, capfd: pytest.CaptureFixture[str]):
    tmp_path = in_folder
    (tmp_path / "corpus").mkdir()
    for book in sorted((QUICKSTART / "corpus" / "books").glob("*.txt"))[:NUM_BOOKS]:
        shutil.copy(book, tmp_path / "corpus")
    shutil.copytree(QUICKSTART / "word-order", tmp_path / "word-order")
    assert run_blocks((DOCS / "api.md").read_text()) == 13
    printed = capfd.readouterr().out
    assert f"clozeworks.ingest documents_read {NUM_BOOKS}\n" in printed
    assert (tmp_path / "predictions.jsonl").read_text().count("\n") == 400


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_sentence_transformers_trains_a_runs_folder_as_the_page_says(in_folder: Path, capfd):
    tmp_path = in_folder
    pytest.importorskip("sentence_transformers", reason="needs sentence-transformers")
    page = (DOCS / "finetuning.md").read_text()
    section = page.split("## Sentence vectors\n")[1].split("\n## ")[0]
    shutil.copytree(ROOT / "examples" / "model", tmp_path / "run")
    texts = ["a cat sat", "a cat was sitting", "a dog ran", "the sea is blue"]
    rows = []
    for one in texts:
        for other in texts:
            row = {"sentence1": one, "sentence2": other, "score": float(one == other)}
            rows.append(json.dumps(row))
    (tmp_path / "pairs.jsonl").write_text("\n".join(rows) + "\n")
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    with patch("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache"):
        assert run_blocks(section) == 2
    assert "tensor(" in capfd.readouterr().out.splitlines()[-1]
    assert (tmp_path / "scored" / "model" / "modules.json").is_file()


@pytest.mark.slow
def test_paths_and_a_single_source_are_taken(tmp_path: Path):
    package: Any = clozeworks.pipeline  # its annotations say `str`
    texts = tmp_path / "texts"
    shutil.copytree(QUICKSTART / "corpus" / "books", texts)
    config = package.IngestConfig(language="en")
    options = package.RunOptions(workers=1)
    documents, vocab, instances = (tmp_path / name for name in ("d", "v", "i"))
    package.ingest(texts, documents, config, options)
    package.learn_vocabulary(documents, vocab, package.VocabConfig(size=300), options)
    rows = package.BuildConfig(max_length=32, duplicates=1)
    package.build(documents, vocab, instances, rows, options)
    assert len(package.read_vocabulary(vocab)) == 300
    assert package.audit(instances).checks
    manifests = package.make_corpus(
        str(texts), tmp_path / "c", config, package.VocabConfig(size=300), rows, options
    )
    assert manifests.documents.digest == package.ingest(texts, documents, config, options).digest
