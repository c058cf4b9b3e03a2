"""Stage 2: documents to a WordPiece vocabulary; `pipeline` wires the phases."""
