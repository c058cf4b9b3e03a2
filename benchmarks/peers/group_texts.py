"""Make masked rows as `transformers`' ``run_mlm.py`` does, with all cores, written to Parquet.

python group_texts.py PARQUET VOCABULARY OUTPUT MAX_LENGTH NUM_PROCESSES
"""

import sys
from collections.abc import Mapping
from itertools import chain
from typing import Any

from datasets import load_dataset
from transformers import AutoTokenizer, DataCollatorForLanguageModeling


def main(parquet: str, vocabulary: str, output: str, length: str, processes: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(vocabulary)
    max_length = int(length)
    num_processes = int(processes)
    texts = load_dataset(
        "parquet", data_files=parquet, split="train", columns=["text"], cache_dir=f"{output}-cache"
    )

    def tokenize(examples: Mapping[str, Any]) -> Any:
        return tokenizer(examples["text"], return_special_tokens_mask=True)

    # run_mlm.py's own function.
    def group_texts(examples: Mapping[str, Any]) -> dict[str, list[Any]]:
        concatenated = {key: list(chain(*examples[key])) for key in examples}
        total_length = len(concatenated[next(iter(examples))])
        total_length = (total_length // max_length) * max_length
        return {
            key: [tokens[i : i + max_length] for i in range(0, total_length, max_length)]
            for key, tokens in concatenated.items()
        }

    collate = DataCollatorForLanguageModeling(tokenizer, return_tensors="np")

    def mask(examples: Mapping[str, Any]) -> Any:
        names = list(examples)
        columns = (examples[name] for name in names)
        rows = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
        return dict(collate(rows))

    rows = texts.map(
        tokenize, batched=True, num_proc=num_processes, remove_columns=texts.column_names
    )
    rows = rows.map(group_texts, batched=True, num_proc=num_processes)
    rows = rows.map(mask, batched=True, num_proc=num_processes, remove_columns=rows.column_names)
    rows.to_parquet(output)


if __name__ == "__main__":
    main(*sys.argv[1:])
