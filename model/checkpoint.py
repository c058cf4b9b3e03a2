"""Read and write model directories in Hugging Face's layout.

They hold ``model.safetensors``, ``config.json`` and the tokenizer's files.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from ..pipeline.config import check
from ..pipeline.errors import UserError
from ..pipeline.parsing import parse_json
from ..pipeline.seeding import stable_hash
from ..pipeline.storage.state import VOCABULARY_FILES, folders_with
from ..pipeline.vocabulary.files import read_vocabulary, unusual_class
from ..pipeline.vocabulary.vocabulary import Vocabulary
from .copies import local_copy
from .encoders.catalogue import current_names, make_pretrain_model, read_hf
from .encoders.config import EncoderConfig
from .encoders.encoder import UnsetWeights
from .encoders.heads import PretrainModel
from .notices import print_notice
from .tokenizer import TextTokenizer, model_max_length
from .torch_file import TorchFileError, read_torch_file

WEIGHTS = "model.safetensors"
SHARDS = "model.safetensors.index.json"
"""Names the file of each weight, where they are in several."""
OLD_WEIGHTS = "pytorch_model.bin"
CONFIG = "config.json"
TASK = "task.json"
"""The settings of the task that a model is fine-tuned for."""


class _ShardIndex(msgspec.Struct):
    weight_map: dict[str, str]


class ModelFiles(NamedTuple):
    """What `save_model` writes."""

    weights: Mapping[str, Tensor]
    config: Mapping[str, Any]
    """What a shape's `to_hf` returns, or more."""
    tokenizer: Mapping[str, bytes]


def files_digest(paths: Sequence[Path]) -> str:
    """Return 16 hexadecimal digits that stand for the contents of the files, in this order."""
    digests = []
    for path in paths:
        with path.open("rb") as file:
            digests.append(hashlib.file_digest(file, "blake2b").hexdigest())
    return f"{stable_hash(*digests):016x}"


def _weight_files(folder: Path) -> list[Path]:
    """Return the files of a model's weights, if any; raise `UserError` if one is missing."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    index_path = folder / SHARDS
    if index_path.is_file():
        index = parse_json(index_path.read_bytes(), _ShardIndex, index_path)
        # Only what lies beside the index, whatever it says.
        names = sorted(set(index.weight_map.values()))
        shards = [folder / Path(name).name for name in names]
        for shard in shards:
            if not shard.is_file():
                raise UserError(f"{shard} is missing, which {SHARDS} names.")
        return shards
    if (folder / OLD_WEIGHTS).is_file():
        return [folder / OLD_WEIGHTS]
    return []


@dataclass(frozen=True)
class Checkpoint:
    """A model directory that was opened: its shape is read, its weights not yet."""

    name: str
    """As the user gave it."""
    folder: Path
    """The directory; if it is remote, a local copy."""
    shape: EncoderConfig

    @classmethod
    def open(cls, directory: str | Path) -> Self:
        """Read the shape of the model in `directory`, which must fit its weights."""
        folder = local_copy(directory)
        path = folder / CONFIG
        if not path.is_file():
            if folder.exists():
                folders = " or ".join(folders_with(str(directory), CONFIG))
                advice = f"; give {folders}" if folders else ""
                raise UserError(
                    f"{directory} is not a model directory: {CONFIG} is missing{advice}."
                )
            advice = ""
            if re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", str(directory), re.ASCII):
                advice = (
                    " If it is a model on the Hugging Face Hub, download it: "
                    f"hf download {directory} --local-dir {directory}"
                )
            raise UserError(f"{directory} does not exist.{advice}")
        fields = parse_json(path.read_bytes(), dict[str, Any], path)
        shape = read_hf(fields, path)
        files = _weight_files(folder)
        # A damaged shape is found before anything of its size is allocated: a parameter takes a
        # byte or more.
        if files and shape.num_parameters() > sum(file.stat().st_size for file in files):
            names = ", ".join(file.name for file in files)
            raise UserError(
                f"{path} describes a larger model than {names} holds; use files of one checkpoint."
            )
        if notice := unusual_class(str(folder)):
            print_notice(f"{notice}.")
        # As in `training.run`, which imports this module.
        if (folder / "run.json").is_file() and not (folder / "summary.json").is_file():
            print_notice(
                f"The run in {directory} is not finished: this is the model of its last "
                "checkpoint. Rerun its command to resume it."
            )
        return cls(str(directory), folder, shape)

    def digest(self) -> str:
        """Return the digest of the weights, the configuration and the tokenizer."""
        # Without the card and task.json, which do not change what the encoder computes.
        others = [self.folder / name for name in (CONFIG, *VOCABULARY_FILES)]
        return files_digest([*_weight_files(self.folder), *filter(Path.is_file, others)])

    def vocabulary(self) -> Vocabulary:
        """Return the vocabulary; raise `UserError` if the model lacks embeddings for its tokens."""
        vocabulary = read_vocabulary(self.name)
        self._check_vocabulary(len(vocabulary))
        return vocabulary

    def text_tokenizer(self, max_length: int) -> TextTokenizer:
        """Return what turns texts into rows of at most `max_length` tokens; raise `UserError` if
        the model lacks embeddings for its tokens or that many positions.
        """
        tokenizer = TextTokenizer(self.name)
        self._check_vocabulary(tokenizer.vocab_size)
        num_positions = self.shape.num_positions
        must = f"the model in {self.name} has {num_positions} positions; lower it"
        check(max_length <= num_positions, "max_length", max_length, must)
        return tokenizer

    def _check_vocabulary(self, vocab_size: int) -> None:
        if vocab_size > self.shape.vocab_size:
            raise UserError(
                f"The vocabulary in {self.name} has {vocab_size} tokens, but its model has "
                f"{self.shape.vocab_size}; use another checkpoint."
            )

    def trained_length(self) -> int:
        """Return how many of the model's positions are trained, as far as its tokenizer says."""
        return int(min(model_max_length(self.name), self.shape.num_positions))

    def weights(self) -> dict[str, Tensor]:
        """Return the weights by their names in ``transformers`` today, on the CPU.

        Reads ``model.safetensors``, its parts that ``model.safetensors.index.json`` names, or
        ``pytorch_model.bin`` without running code from it. Old names (``gamma`` and ``beta``)
        become today's, copies of tied weights are dropped, and the missing prefix of an encoder
        alone (``bert.``, ``model.``) is added.
        """
        files = _weight_files(self.folder)
        if not files:
            raise UserError(f"{self.name} has no weights: {WEIGHTS} is missing.")
        weights: dict[str, Any] = {}
        for path in files:
            advice = "Use another checkpoint."
            if path.name == OLD_WEIGHTS:
                weights |= load_tensors(path, advice)
                continue
            try:
                weights |= load_file(path)
            except (SafetensorError, OSError, RuntimeError, ValueError):
                raise UserError(f"{path} is damaged. {advice}") from None
        for name, weight in weights.items():
            # An old file may hold anything.
            if not isinstance(name, str) or not name.isprintable() or len(name) > 200:
                raise UserError(f"{self.name} has weights without proper names. Use another.")
            if not isinstance(weight, Tensor):
                raise UserError(
                    f"{name} in {self.name} is not a tensor: {OLD_WEIGHTS} must hold the weights "
                    "by name and nothing else, as `torch.save(model.state_dict(), …)` writes them."
                )
            if weight.is_floating_point() and weight.element_size() < 2:
                raise UserError(
                    f"{name} in {self.name} is stored as {weight.dtype}, too coarse to be trained; "
                    "use the checkpoint in bf16 or fp32."
                )
        return current_names(self.shape, weights)

    def load_into(self, model: nn.Module, new: tuple[str, ...] = ()) -> list[str]:
        """Copy the weights into `model`, and return the names of missing ones.

        Only weights whose names begin with one of `new` (for instance ``classifier.``) may be
        missing; they stay as they are. Weights that the model does not use are left out. Raises
        `UserError` for other shapes.
        """
        weights = self.weights()
        if isinstance(model, PretrainModel) and model.untied_weight in weights:
            raise UserError(
                f"The masked-LM head of {self.name} has an output matrix of its own "
                f"({model.untied_weight}), not the word embeddings; such a model is only read to "
                "be fine-tuned, or for features."
            )
        missing: list[str] = []
        for name, target in model.state_dict().items():
            if name not in weights:
                if not name.startswith(new):
                    raise UserError(
                        f"The checkpoint {self.name} lacks {name}; it is a checkpoint of another "
                        "kind of model."
                    )
                missing.append(name)
                continue
            weight = weights[name]
            if weight.shape != target.shape:
                raise UserError(
                    f"{name} in {self.name} has shape {tuple(weight.shape)}, but this model needs "
                    f"{tuple(target.shape)}."
                )
            # Not before: of a stranger's file only what the model asks for is computed with. A sum,
            # which may overflow, takes a thirtieth of the time.
            is_float = weight.is_floating_point()
            if not (is_float and (weight.sum().isfinite() or weight.isfinite().all())):
                raise UserError(
                    f"{name} in {self.name} has values that are not finite numbers. Use another "
                    "checkpoint."
                )
            # The tensors of a state dict share their memory with the parameters, without a
            # gradient.
            target.copy_(weight)
        return missing

    def pretrain_model(self, masked_words_alone: bool = False) -> PretrainModel:
        """Return the model with its pre-training heads, on the CPU, in training mode.

        For `masked_words_alone` a BERT needs no pooler and no next-sentence head, as those of
        ``BertForMaskedLM``; where they are missing, they stay unset.
        """
        with UnsetWeights():
            model = make_pretrain_model(self.shape)
        unused = ("bert.pooler.", "cls.seq_relationship.")
        self.load_into(model, new=unused if masked_words_alone else ())
        return model


def read_model(directory: str | Path) -> PretrainModel:
    """Return the model in `directory` with its pre-training heads, on the CPU, in training mode."""
    return Checkpoint.open(directory).pretrain_model()


def save_model(directory: Path, model: ModelFiles) -> None:
    """Write a model directory into a folder that nothing reads yet."""
    directory.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, Tensor] = {}
    for name, weight in model.weights.items():
        # safetensors refuses views with gaps, such as a transposed weight.
        tensors[name] = weight.detach().cpu().contiguous()
    # transformers refuses a file that does not say which library wrote it.
    content = save(tensors, metadata={"format": "pt"})
    (directory / WEIGHTS).write_bytes(content)
    config_text = json.dumps(model.config, indent=2, sort_keys=True) + "\n"
    (directory / CONFIG).write_text(config_text, encoding="utf-8")
    for name, content in model.tokenizer.items():
        (directory / name).write_bytes(content)


def write_json(path: Path, values: Mapping[str, object]) -> None:
    """Write `values` in their order, indented for readers, into a folder that nothing reads yet."""
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def load_tensors(path: Path, advice: str) -> dict[str, Any]:
    """Return the dict that `torch.save` wrote, on the CPU; `advice` is for a damaged file."""
    try:
        values = read_torch_file(path)
    except TorchFileError as error:
        raise UserError(f"{path} is damaged: {error}. {advice}") from None
    if not isinstance(values, dict):
        raise UserError(f"{path} is damaged: it does not hold a dict. {advice}")
    return values
