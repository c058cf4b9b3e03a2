"""The tasks of fine-tuning: one small file a kind of task, and the one way in which they are read and batched."""
