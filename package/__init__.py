"""Raw text in, BERT pre-training corpora in Parquet and a trained encoder out.

The parts are `clozeworks.pipeline` (text to instances) and `clozeworks.model` (instances to
encoders); see docs/api.md.
"""

__version__ = "0.1.0"
