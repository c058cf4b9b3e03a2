"""What `run_mlm.py` of `transformers` does before the first update: `datasets.map` with a fast
tokenizer, and all tokens in rows of one length.

    group_texts.py PARQUET VOCABULARY FOLDER

PARQUET has a column ``text``. Masks are not made: its collator draws them in training. Prints the
tokens of all rows.
"""

import json
import sys
from importlib.metadata import version
from itertools import chain
from typing import Any

from datasets import load_dataset
from transformers import AutoTokenizer

LENGTH = 128


def main(path: str, vocabulary: str, folder: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(vocabulary)
    texts: Any = load_dataset("parquet", data_files=path, split="train", cache_dir=folder)
    # One process, which starts no threads of its own: the core that is measured.
    tokenized = texts.map(
        lambda rows: tokenizer(rows["text"], return_special_tokens_mask=True),
        batched=True,
        remove_columns=texts.column_names,
    )
    grouped = tokenized.map(group_texts, batched=True)
    names = f"datasets {version('datasets')}, transformers {version('transformers')}"
    print(json.dumps({names: len(grouped) * LENGTH}))


def group_texts(examples: dict[str, list[list[int]]]) -> dict[str, list[list[int]]]:
    joined = {name: list(chain(*rows)) for name, rows in examples.items()}
    total = len(joined["input_ids"]) // LENGTH * LENGTH
    return {
        name: [values[i : i + LENGTH] for i in range(0, total, LENGTH)]
        for name, values in joined.items()
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
