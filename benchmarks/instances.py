"""Documents to instances, beside google-research's algorithm and beside ``run_mlm.py``'s functions
in `datasets`.

Our builds are processes of their own, measured end to end.
"""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import datasets
import pyarrow.parquet as pq
import transformers
from clozeworks.pipeline.vocabulary.files import read_vocabulary

from .google_research import create_instances, make_tokenizer
from .inputs import Inputs, read_documents
from .process import Usage, run_command, run_measured
from .table import Row

MAX_LENGTH = 128
UNIT = "tokens/s"


def rows(inputs: Inputs) -> Iterator[Row]:
    for duplicates in (5, 1):
        output, usage = build(inputs, f"--duplicates={duplicates}")
        passes = "5 passes" if duplicates == 5 else "one pass"
        yield Row(
            f"documents to instances, {passes}, per core",
            count_tokens(sorted(output.glob("*.parquet"))) / usage.cpu_s,
            "google-research's `create_pretraining_data.py` of 2020, ported without TensorFlow",
            google_research_rate(inputs, duplicates),
            UNIT,
            f"{usage.peak_mb:.0f} MB",
        )
    cores = os.cpu_count() or 1
    output, usage = build(inputs, "--duplicates=1", "--pairing=none", f"--workers={cores}")
    theirs = inputs.work / "grouped.parquet"
    script = Path(__file__).parent / "peers" / "group_texts.py"
    arguments = map(str, (inputs.text, inputs.wordpiece, theirs, MAX_LENGTH, cores))
    peer_usage = run_measured([sys.executable, str(script), *arguments])
    versions = f"`datasets` {datasets.__version__}, `transformers` {transformers.__version__}"
    yield Row(
        f"text to masked rows without pairs, {cores} processes, by the clock",
        count_tokens(sorted(output.glob("*.parquet"))) / usage.wall_s,
        f"{versions}, `map` of a fast tokenizer and `group_texts`",
        count_tokens([theirs]) / peer_usage.wall_s,
        UNIT,
    )


def build(inputs: Inputs, *options: str) -> tuple[Path, Usage]:
    output = inputs.work / "built"
    vocabulary = f"--vocab={inputs.wordpiece}"
    length = f"--max-length={MAX_LENGTH}"
    return output, run_command(
        "build", inputs.documents, vocabulary, length, f"--output={output}", "--overwrite", *options
    )


def count_tokens(shards: list[Path]) -> int:
    return sum(
        len(batch.column(0).flatten())
        for shard in shards
        for batch in pq.ParquetFile(shard).iter_batches(columns=["input_ids"])
    )


def google_research_rate(inputs: Inputs, duplicates: int) -> float:
    """Return the tokens a second that google-research's algorithm makes of 1 MB: its time is
    linear.
    """
    vocabulary = read_vocabulary(str(inputs.wordpiece))
    tokenize = make_tokenizer(vocabulary.tokens, vocabulary.normalization.lowercase)
    texts: list[list[str]] = []
    num_bytes = 0
    for sentences in read_documents(inputs.documents):
        texts.append(sentences.as_py())
        num_bytes += sum(map(len, texts[-1]))
        # Its random next sentences need a second document.
        if num_bytes > 1 << 20 and len(texts) > 1:
            break
    begin = time.process_time()
    tokenized = []
    for text in texts:
        sentences_of_tokens = [tokens for tokens in map(tokenize, text) if tokens]
        if sentences_of_tokens:
            tokenized.append(sentences_of_tokens)
    instances = create_instances(tokenized, vocabulary.tokens, MAX_LENGTH, duplicates)
    num_tokens = sum(len(tokens) for tokens, *_ in instances)
    return num_tokens / (time.process_time() - begin)
