"""A tiny pre-trained model directory, as the tests of fine-tuning need one."""

from pathlib import Path

import torch
from clozeworks.model.bert import initialise
from clozeworks.model.checkpoint import save_model
from clozeworks.model.config import ModelConfig
from clozeworks.model.heads import BertForPreTraining
from tokenizers.implementations.bert_wordpiece import BertWordPieceTokenizer

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_LINE = "a the film book was is very not good bad dull bright mask sep ##s ##y [ ] . , \" ' ! - 1 2 3 b c d e"
WORDS = _LINE.split(" ")


def make_checkpoint(directory: Path, **changes) -> Path:
    """Write a random BERT of 2 layers whose vocabulary is `WORDS`, and return its directory."""
    tokens = SPECIALS + WORDS
    # Weights larger than usual, so that a few dozen steps are enough to learn something.
    shape = {
        "initializer_range": 0.1,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
    }
    config = ModelConfig(**{"vocab_size": len(tokens), "max_position_embeddings": 64, **shape, **changes})
    model = BertForPreTraining(config)
    initialise(model, config, torch.Generator().manual_seed(5))
    vocabulary = "".join(f"{token}\n" for token in tokens).encode()
    directory.mkdir(parents=True)
    (directory / "vocab.txt").write_bytes(vocabulary)
    tokenizer = BertWordPieceTokenizer(str(directory / "vocab.txt")).to_str().encode()
    settings = b'{"do_lower_case": true, "tokenizer_class": "BertTokenizer"}'
    files = {"vocab.txt": vocabulary, "tokenizer.json": tokenizer, "tokenizer_config.json": settings}
    save_model(directory, model.state_dict(), config.to_hf(), files)
    return directory
