"""The peer of pre-training: `transformers.BertForPreTraining` on our padded batches."""

from typing import Any

import torch
from clozeworks.model.encoders.config import ModelConfig
from clozeworks.model.encoders.heads import IGNORED
from clozeworks.model.pretraining.batches import PretrainBatch


def make_peer(config: ModelConfig) -> Any:
    from transformers import BertConfig, BertForPreTraining

    values: dict[str, Any] = config.to_hf()
    return BertForPreTraining(BertConfig(**values))


def peer_loss(model: Any, batch: PretrainBatch) -> torch.Tensor:
    """Return the mean masked-LM loss of the batch plus that of the next sentences; waits for no
    GPU.
    """
    labels = torch.full_like(batch.input_ids, IGNORED).flatten()
    labels = labels.scatter(0, batch.masked_index, batch.masked_ids).view_as(batch.input_ids)
    mask = (
        torch.ones_like(labels)
        if batch.attention_mask_BL is None
        else batch.attention_mask_BL.long()
    )
    output = model(
        input_ids=batch.input_ids,
        token_type_ids=batch.token_type_ids,
        attention_mask=mask,
        labels=labels,
        next_sentence_label=batch.next_sentence_label_B,
    )
    return output.loss
