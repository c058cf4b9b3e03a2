"""The peer of pre-training: the same encoder of `transformers` on our padded batches."""

from typing import Any

import torch
from clozeworks.model.encoders.config import EncoderConfig
from clozeworks.model.encoders.heads import IGNORED, PretrainBatch


def make_peer(config: EncoderConfig) -> Any:
    import transformers

    values: dict[str, Any] = config.to_hf()
    if config.model_type == "modernbert":
        return transformers.ModernBertForMaskedLM(transformers.ModernBertConfig(**values))
    return transformers.BertForPreTraining(transformers.BertConfig(**values))


def peer_loss(model: Any, batch: PretrainBatch) -> torch.Tensor:
    """Return the mean masked-LM loss of the batch, plus that of next sentences if it has any; waits
    for no GPU.
    """
    labels = torch.full_like(batch.input_ids, IGNORED).flatten()
    labels = labels.scatter(0, batch.masked_index, batch.masked_ids).view_as(batch.input_ids)
    mask = (
        torch.ones_like(labels)
        if batch.attention_mask_BL is None
        else batch.attention_mask_BL.long()
    )
    pairs = {}
    if batch.next_sentence_label_B is not None:
        pairs["token_type_ids"] = batch.token_type_ids
        pairs["next_sentence_label"] = batch.next_sentence_label_B
    output = model(input_ids=batch.input_ids, attention_mask=mask, labels=labels, **pairs)
    return output.loss
