"""Stage 2: documents to a WordPiece vocabulary.

`pipeline` wires the stage: `tokenize` counts words (and later turns text into ids), `wordpiece` learns the merges,
`vocabulary` reads, writes and measures the result.
"""
