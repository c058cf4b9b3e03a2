"""Define the Arrow schemas of every Parquet file, the contract between the stages.

docs/data.md says what the columns mean.
"""

import pyarrow as pa

SEQUENCE_STARTS = "sequence_starts"
"""The column that only packed instances have."""


def _schema(**types: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, type, nullable=False) for name, type in types.items()])


DOCUMENTS = _schema(
    doc_id=pa.string(),
    source=pa.string(),
    language=pa.string(),
    title=pa.string(),
    sentences=pa.list_(pa.string()),
)

WORD_COUNTS = _schema(word=pa.string(), count=pa.int64())
"""Distinct words, most frequent first."""


def instances_schema(vocab_size: int, *, packed: bool = False) -> pa.Schema:
    """Return the schema of instances; token ids are 16 bits wide if the vocabulary allows it."""
    token = pa.uint32() if vocab_size > 2**16 else pa.uint16()
    if packed:
        return _schema(
            input_ids=pa.list_(token),
            sequence_starts=pa.list_(pa.uint16()),
            documents=pa.list_(pa.int32()),
            masked_lm_positions=pa.list_(pa.uint16()),
            masked_lm_ids=pa.list_(token),
            duplicate=pa.uint8(),
        )
    return _schema(
        input_ids=pa.list_(token),
        segment_b_start=pa.uint16(),
        masked_lm_positions=pa.list_(pa.uint16()),
        masked_lm_ids=pa.list_(token),
        next_sentence_label=pa.uint8(),
        # 32 bits: a shard holds far fewer documents than 2 ** 31.
        document_a=pa.int32(),
        document_b=pa.int32(),
        duplicate=pa.uint8(),
    )
