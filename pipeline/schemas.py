"""Define the Arrow schemas of every Parquet file, the contract between the stages, and what their
columns mean.
"""

import pyarrow as pa

SEQUENCE_STARTS = "sequence_starts"
"""The column that only packed instances have."""

MEANINGS = {
    # Documents, a row for each. A shard is a uniform random sample of the corpus, sorted by hash.
    "doc_id": "source and id",  # ``source:id``, unique in the corpus
    # The dump's database name (``enwiki``), or the name of the data set or format; never that of a
    # file.
    "source": "where the document is from",
    "language": "its code in BCP 47",  # ``und`` if the source does not say
    "title": "empty if it has none",
    "sentences": "list of the document's sentences, in order",  # no control characters
    # Instances, a row for each: ``[CLS] A [SEP] B [SEP]``.
    "input_ids": "tokens with masks, from [CLS] to the last [SEP], not padded",
    "segment_b_start": "index of B's first token; the row's length if there is no B",
    # Packed instances have several documents in a row. Each is a sequence of its own,
    # ``[CLS] document [SEP]``, and sees none of the others.
    SEQUENCE_STARTS: "indices of the tokens where a document starts",  # ascending, from 0 on
    "documents": "their rows in the documents",  # of the shard of the same number
    "masked_lm_positions": "indices of the tokens to predict",  # in the row, ascending
    "masked_lm_ids": "the original tokens there",
    # As in ``transformers.BertForPreTraining``; for other pairings see `data_card`.
    "next_sentence_label": "0 if B follows A, else 1",
    "document_a": "row of A in the documents",  # of the shard of the same number
    "document_b": "row of B in the documents",
    "duplicate": "the pass over the documents",
}
"""What the columns of documents and instances mean, as data cards say it."""

SENTENCE_ENDS = tuple(".?!…。！？．｡‼⁇⁈⁉‽।॥৷۔؟։።។။")
"""The punctuation that ends a sentence, in any script; closing quotes and brackets may follow."""


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
    token = pa.uint16()
    if vocab_size > 2**16:
        token = pa.uint32()
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
