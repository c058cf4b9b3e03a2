"""Stage 1: sources to documents, deduplicated, shuffled, split, sharded; see `pipeline`."""
