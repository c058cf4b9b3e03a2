"""Stage 3: documents and a vocabulary to instances, masked sentence pairs.

`pipeline` wires the stage: `chunks` cuts documents into groups of whole sentences, `pairs` makes
rows of those of one origin (`origins`) with balanced labels (`balance`), `masking` chooses and
masks the tokens to predict, `instances` lays out the table.
"""
