"""From a pre-trained encoder to a task model, and what it predicts."""
