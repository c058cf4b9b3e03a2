"""The Arrow schemas of every file that a stage writes: the contract between stages; README.md explains the columns."""

import pyarrow as pa

SENTENCE_ENDS = tuple(".?!…。！？।॥۔؟։።។။")
"""The punctuation that ends a sentence, in any script; closing quotes and brackets may follow."""

DOCUMENTS = pa.schema(
    [
        pa.field("doc_id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("title", pa.string(), nullable=False),
        pa.field("sentences", pa.list_(pa.string()), nullable=False),
    ]
)

WORD_COUNTS = pa.schema(
    [
        pa.field("word", pa.string(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
    ]
)


def instances_schema(vocab_size: int) -> pa.Schema:
    """Return the schema of instances; token ids are 16 bits wide if the vocabulary allows it."""
    token = pa.uint16() if vocab_size <= 2**16 else pa.uint32()
    return pa.schema(
        [
            pa.field("input_ids", pa.list_(token), nullable=False),
            pa.field("segment_b_start", pa.uint16(), nullable=False),
            pa.field("masked_lm_positions", pa.list_(pa.uint16()), nullable=False),
            pa.field("masked_lm_ids", pa.list_(token), nullable=False),
            pa.field("next_sentence_label", pa.uint8(), nullable=False),
            pa.field("document_a", pa.int32(), nullable=False),
            pa.field("document_b", pa.int32(), nullable=False),
            pa.field("duplicate", pa.uint8(), nullable=False),
        ]
    )
