"""From raw text to masked sentence pairs: pure functions, and the units of work that call them.

The data move through the folders::

    sources/   files to raw documents, one reader per format; sentences
    ingest/    raw documents to documents/: scatter by hash, deduplicate, gather into shards
    vocab/     documents/ to vocab/: word counts, WordPiece, the tokenizer's files
    build/     documents/ to instances/: token ids, chunks, pairs, masks
    audit/     instances/ measured against their configuration; rows decoded for reading

Each stage's ``pipeline.py`` wires it together; the other files are rules. ``execution/`` runs units of work on this
machine or on Apache Beam, and owns files and output directories. Below everything are the contracts: ``config`` (the
options), ``schemas`` (the columns), ``seeding`` (all randomness) and ``errors``. Nothing here imports torch.
"""
