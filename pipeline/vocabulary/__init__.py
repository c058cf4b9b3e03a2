"""Stage 2: documents to a vocabulary; `pipeline` wires the phases."""
