"""Define the Arrow schemas of every Parquet file, the contract between the stages.

Columns of **documents** (one row per document; each shard is a uniform random sample of the corpus,
sorted by hash):

- ``doc_id``: ``source:id``, unique in the corpus;
- ``source``: the dump's database name (``enwiki``), or the name of the data set or format; never a
  file name;
- ``language``: code of BCP 47 (``en``), ``und`` if the source does not say;
- ``title``: may be empty;
- ``sentences``: the text, one sentence per item; no control characters, single spaces.

Columns of **word counts** (one row per distinct word, most frequent first): ``word``, ``count``.

Columns of **instances** (one row per pre-training example, not padded):

- ``input_ids``: ``[CLS] A [SEP] B [SEP]`` with the masks applied;
- ``segment_b_start``: index of B's first token; the row's length if there is no B;
- ``masked_lm_positions``: ascending indices into ``input_ids`` of the tokens to predict;
- ``masked_lm_ids``: the original tokens at those positions, which restore the unmasked text;
- ``next_sentence_label``: 0 IsNext, 1 NotNext, as in ``transformers.BertForPreTraining`` (for
  ``sop``: 1 means swapped; for ``none``: always 0);
- ``document_a``, ``document_b``: the rows that A and B come from, in the document shard of the same
  number;
- ``duplicate``: which pass over the documents the row belongs to.

**Packed** instances (`BuildConfig.packs`) have several documents in a row, each of which is a
sequence of its own, ``[CLS] document [SEP]``, and sees none of the others:

- ``input_ids``: the sequences one after the other, with the masks applied;
- ``sequence_starts``: ascending indices into ``input_ids``, where each sequence starts, from 0 on;
- ``documents``: the row that each sequence comes from, in the document shard of the same number;
- ``masked_lm_positions``, ``masked_lm_ids``, ``duplicate``: as above; positions count from the
  start of the row.
"""

import pyarrow as pa

SENTENCE_ENDS = tuple(".?!…。！？．｡‼⁇⁈⁉‽।॥৷۔؟։።។။")
"""The punctuation that ends a sentence, in any script; closing quotes and brackets may follow."""

DOCUMENTS = pa.schema(
    [
        pa.field("doc_id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("language", pa.string(), nullable=False),
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


SEQUENCE_STARTS = "sequence_starts"
"""The column that only packed instances have."""


def instances_schema(vocab_size: int, *, packed: bool = False) -> pa.Schema:
    """Return the schema of instances; token ids are 16 bits wide if the vocabulary allows it."""
    token = pa.uint16()
    if vocab_size > 2**16:
        token = pa.uint32()
    if packed:
        return pa.schema(
            [
                pa.field("input_ids", pa.list_(token), nullable=False),
                pa.field(SEQUENCE_STARTS, pa.list_(pa.uint16()), nullable=False),
                pa.field("documents", pa.list_(pa.int32()), nullable=False),
                pa.field("masked_lm_positions", pa.list_(pa.uint16()), nullable=False),
                pa.field("masked_lm_ids", pa.list_(token), nullable=False),
                pa.field("duplicate", pa.uint8(), nullable=False),
            ]
        )
    return pa.schema(
        [
            pa.field("input_ids", pa.list_(token), nullable=False),
            pa.field("segment_b_start", pa.uint16(), nullable=False),
            pa.field("masked_lm_positions", pa.list_(pa.uint16()), nullable=False),
            pa.field("masked_lm_ids", pa.list_(token), nullable=False),
            pa.field("next_sentence_label", pa.uint8(), nullable=False),
            # 32 bits: a shard holds far fewer documents than 2 ** 31.
            pa.field("document_a", pa.int32(), nullable=False),
            pa.field("document_b", pa.int32(), nullable=False),
            pa.field("duplicate", pa.uint8(), nullable=False),
        ]
    )
