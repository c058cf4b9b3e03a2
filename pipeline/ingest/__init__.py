"""Stage 1: sources to documents, deduplicated, shuffled, split and sharded.

`pipeline` wires the phases: `scatter` reads sources and writes documents by hash, `near_duplicates` (by `minhash`) and
`duplicates` find the documents to remove, `gather` writes the shards.
"""
