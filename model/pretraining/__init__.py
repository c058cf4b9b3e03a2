"""From instances to a pre-trained encoder."""
