"""The encoder, the Parquet loader, pre-training, fine-tuning and evaluation, in plain PyTorch.

Nothing in this package imports Beam: of ``clozeworks.pipeline`` it uses only the Beam-free modules.
"""
