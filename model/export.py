"""A copy of a model directory for the Hugging Face Hub: the model, its tokenizer and its card, and
nothing else.
"""

import shutil
from pathlib import Path

from ..pipeline import storage
from ..pipeline.errors import UserError
from ..pipeline.storage.directory import WORK, OutputDirectory, locked
from ..pipeline.storage.stage import VOCABULARY_FILES
from .card import CARD, with_license
from .checkpoint import CONFIG, WEIGHTS, read_config
from .config import check_license

TASK = "task.json"  # as in `finetuning.predict`
NEEDED = (WEIGHTS, CONFIG, CARD)
FILES = (*NEEDED, TASK, *VOCABULARY_FILES)


def export(directory: str | Path, output: str | Path, license: str | None = None) -> dict[str, int]:
    """Copy the model in `directory`, a finished run, to `output`, and return the bytes of each file
    by its name.

    `license` replaces the licence in the card. Files of a model exported to `output` before are
    replaced or removed. Raises `UserError` if there is no finished model, and for an `output` that
    holds anything else or another card, which may have been edited.
    """
    directory, output = str(directory), str(output)
    check_license(license)
    read_config(directory)
    names = [name for name in FILES if storage.exists(storage.join(directory, name))]
    if missing := [name for name in NEEDED if name not in names]:
        raise UserError(
            f"{directory} is not a finished run: {missing[0]} is missing. Rerun the command that writes it."
        )
    present = storage.file_names(output)
    if others := [name for name in present if name not in FILES and not name.startswith(".")]:
        raise UserError(
            f"{output} already contains other files ({others[0]}, …). Choose another `output`."
        )
    card = storage.read_bytes(storage.join(directory, CARD))
    if license:
        card = with_license(card.decode(errors="surrogateescape"), license).encode(
            errors="surrogateescape"
        )
    if CARD in present and storage.read_bytes(storage.join(output, CARD)) != card:
        raise UserError(
            f"{output} contains another {CARD}, perhaps edited. Delete it, or choose another `output`."
        )
    target = OutputDirectory(output)
    with locked(output):
        for name in names:
            if name != CARD:
                with (
                    storage.open_input(storage.join(directory, name)) as source,
                    target.write(name) as file,
                ):
                    shutil.copyfileobj(source, file)
        target.write_bytes(CARD, card)
        target.remove(*(name for name in FILES if name not in names), WORK)
    return {name: storage.file_sizes(output)[name] for name in names}
