"""Small directories of instances, written by hand after pipeline/schemas.py: the contract, not our own `build`."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from clozeworks.model.data import Rows
from clozeworks.pipeline.schemas import instances_schema
from manifest_fixture import write_manifest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PAD, UNK, CLS, SEP, MASK = range(5)


def write_instances(
    path: Path,
    *,
    shards: int = 2,
    duplicates: int = 2,
    rows_per_group: int = 20,
    validation_rows: int = 16,
    vocab_size: int = 60,
    max_length: int = 24,
    seed: int = 0,
) -> Path:
    """Write sentence pairs that a small model learns at once: a segment repeats two words (see `make_row`)."""
    path.mkdir(parents=True, exist_ok=True)
    write_tokenizer(path, vocab_size)
    sizes = {f"train-{i:05d}-of-{shards:05d}.parquet": [rows_per_group + i] * duplicates for i in range(shards)}
    sizes["validation-00000-of-00001.parquet"] = [validation_rows]
    notes = {"tokenizer": f"test-{vocab_size}", "max_length": max_length, "seed": seed, "vocab_size": vocab_size}
    for number, (name, groups) in enumerate(sizes.items()):
        rng = np.random.default_rng((seed, number))
        schema = instances_schema(vocab_size).with_metadata({f"clozeworks.{k}": str(v) for k, v in notes.items()})
        with pq.ParquetWriter(path / name, schema, compression="zstd") as writer:
            for duplicate, num_rows in enumerate(groups):
                rows = [make_row(rng, vocab_size, max_length, duplicate, row) for row in range(num_rows)]
                writer.write_table(pa.Table.from_pylist(rows, schema=schema), row_group_size=num_rows)
    rows_of = {name: sum(groups) for name, groups in sizes.items()}
    write_manifest(path, "build", rows_of, config={"max_length": max_length, "seed": seed})
    return path


def make_row(rng: np.random.Generator, vocab_size: int, max_length: int, duplicate: int, row: int) -> dict:
    """Return one instance; each segment repeats a word and the next one, and IsNext has the same two in both."""
    length_a, length_b = (int(rng.integers(1, (max_length - 3) // 2 + 1)) for _ in range(2))
    label = int(rng.integers(2))
    first_a = int(rng.integers(vocab_size))
    first_b = int(rng.integers(vocab_size)) if label else first_a
    a, b = (
        [len(SPECIALS) + (first + i % 2) % (vocab_size - len(SPECIALS)) for i in range(n)]
        for first, n in ((first_a, length_a), (first_b, length_b))
    )
    ids = [CLS, *a, SEP, *b, SEP]
    places = np.flatnonzero(np.array(ids) >= len(SPECIALS))
    positions = np.sort(rng.permutation(places)[: max(1, round(0.15 * len(ids)))])
    masked_ids = [ids[position] for position in positions]
    for position in positions:
        ids[position] = MASK
    return {
        "input_ids": ids,
        "segment_b_start": length_a + 2,
        "masked_lm_positions": positions.tolist(),
        "masked_lm_ids": masked_ids,
        "next_sentence_label": label,
        "document_a": row,
        "document_b": row + label,
        "duplicate": duplicate,
    }


def write_tokenizer(path: Path, vocab_size: int) -> None:
    """Write the three files of a WordPiece tokenizer whose words are w5, w6, ..."""
    words = SPECIALS + [f"w{number}" for number in range(len(SPECIALS), vocab_size)]
    (path / "vocab.txt").write_text("\n".join(words) + "\n")
    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.add_special_tokens(SPECIALS)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", SEP), ("[CLS]", CLS))
    tokenizer.save(str(path / "tokenizer.json"))
    names = {f"{name.strip('[]').lower()}_token": name for name in SPECIALS}
    config = {"tokenizer_class": "BertTokenizerFast", "do_lower_case": True, "model_max_length": 512} | names
    (path / "tokenizer_config.json").write_text(json.dumps(config))


def as_lists(rows: Rows) -> list[tuple]:
    """Return each row as plain numbers: original tokens, positions to predict, label, start of B."""
    ids = np.split(rows.unmasked_ids(), rows.offsets[1:-1])
    masked = np.split(rows.masked_positions, rows.masked_offsets[1:-1])
    labels = rows.next_sentence_label.tolist()
    starts = rows.segment_b_start.tolist()
    return [(*i.tolist(), -1, *m.tolist(), -1, n, s) for i, m, n, s in zip(ids, masked, labels, starts, strict=True)]
