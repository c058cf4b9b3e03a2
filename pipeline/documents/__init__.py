"""Stage 1: sources to documents, deduplicated, shuffled, split and sharded; `pipeline` wires the
phases.
"""
