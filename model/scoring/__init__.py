"""Score sentences with a pre-trained encoder as it is, without fine-tuning."""
