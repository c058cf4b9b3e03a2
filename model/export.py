"""Copy a model directory for the Hugging Face Hub: the model, its tokenizer and its card alone."""

import shutil
from pathlib import Path

from ..pipeline import storage
from ..pipeline.errors import UserError
from ..pipeline.licenses import check_license
from ..pipeline.storage.directory import WORK, OutputDirectory, locked
from ..pipeline.storage.stage import VOCABULARY_FILES
from .card import CARD, with_license
from .checkpoint import CONFIG, POOLING, SENTENCE_FILES, TASK, WEIGHTS, read_config

NEEDED = (WEIGHTS, CONFIG, CARD)
FILES = (*NEEDED, TASK, *SENTENCE_FILES, POOLING, *VOCABULARY_FILES)


def export(directory: str | Path, output: str | Path, license: str | None = None) -> dict[str, int]:
    """Copy the model in `directory`, a finished run, to `output`; return each file's bytes by name.

    `license` replaces the licence in the card. Files of a model exported to `output` before are
    replaced or removed. Raises `UserError` if there is no finished model, and for an `output` that
    holds anything else or another card, which may have been edited.
    """
    directory = str(directory)
    output = str(output)
    check_license(license)
    read_config(directory)
    names = [name for name in FILES if storage.exists(storage.join(directory, name))]
    for name in NEEDED:
        if name not in names:
            raise UserError(
                f"{directory} is not a finished run: {name} is missing. Rerun the command that "
                "writes it."
            )
    card = storage.read_bytes(storage.join(directory, CARD))
    if license:
        # Bytes that are not UTF-8 survive the round trip as surrogates.
        text = with_license(card.decode(errors="surrogateescape"), license)
        card = text.encode(errors="surrogateescape")
    _check_output(output, card)

    target = OutputDirectory(output)
    # What an earlier export left and this model lacks, such as the task.json of another.
    outdated = [name for name in FILES if name not in names]
    with locked(output):
        for name in names:
            if name == CARD:
                continue  # its licence may have changed
            source_path = storage.join(directory, name)
            with storage.open_input(source_path) as source, target.write(name) as file:
                shutil.copyfileobj(source, file)
        target.write_bytes(CARD, card)
        target.remove(*outdated, WORK)
    paths = {name: storage.join(output, name) for name in names}
    return {name: storage.find_files(path)[path] for name, path in paths.items()}


def _check_output(output: str, card: bytes) -> None:
    present = storage.file_names(output)
    # Hidden files are no others: a clone of a Hub repository has .gitattributes.
    others = [name for name in present if name not in FILES and not name.startswith(".")]
    if others:
        raise UserError(
            f"{output} already contains other files ({others[0]}, …). Choose another `output`."
        )
    if CARD in present and storage.read_bytes(storage.join(output, CARD)) != card:
        raise UserError(
            f"{output} contains another {CARD}, perhaps edited. Delete it, or choose another "
            "`output`."
        )
