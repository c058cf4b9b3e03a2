"""Copy a model directory for the Hugging Face Hub: the model, its tokenizer and its card alone."""

import shutil
from pathlib import Path

from ..pipeline import storage
from ..pipeline.errors import UserError
from ..pipeline.storage.directory import WORK, OutputDirectory, locked
from ..pipeline.storage.state import VOCABULARY_FILES
from .card import CARD, with_license
from .checkpoint import CONFIG, TASK, WEIGHTS, Checkpoint
from .config import check_license

FILES = (WEIGHTS, CONFIG, CARD, TASK, *VOCABULARY_FILES)


def export(
    directory: str | Path, output: str | Path, license: str | None = None, overwrite: bool = False
) -> list[str]:
    """Copy a finished run's model to a folder, with this licence; return its files' names."""
    directory = str(directory)
    output = str(output)
    check_license(license)
    # With `overwrite` it would be deleted before it is copied.
    if Path(output).resolve() == Path(directory).resolve():
        raise UserError(f"`output` is the model itself ({output}); give another folder.")
    Checkpoint.open(directory)  # raises if it is damaged
    names = [name for name in FILES if storage.exists(storage.join(directory, name))]
    for name in names:
        path = storage.join(directory, name)
        if storage.leads_out(path, directory):
            raise UserError(
                f"{path} is a link out of the folder, to what may not be meant for others: put a "
                "copy of that file in its place."
            )
    for name in (WEIGHTS, CARD):
        if name not in names:
            raise UserError(
                f"{directory} is not a finished run: {name} is missing. Rerun the command that "
                "writes it."
            )
    # Hidden files are ignored, such as the .gitattributes of a Hub clone.
    present = storage.visible_names(output)
    for name in present:
        # A folder may have the name of a file of ours, and private texts in it.
        if name not in FILES or not storage.exists(storage.join(output, name)):
            raise UserError(f"{output} contains other files ({name}, …). Choose another `output`.")
    if present and not overwrite:
        content = ", ".join(present)
        raise UserError(f"{output} contains {content}. Replace what is there with `overwrite`.")
    target = OutputDirectory(output)
    with locked(output):
        target.remove(*present)  # such as the task.json of another model
        for name in names:
            path = storage.join(directory, name)
            with storage.open_input(path) as source, target.write(name) as file:
                shutil.copyfileobj(source, file)
        if license:
            card = storage.read_bytes(storage.join(directory, CARD)).decode(errors="replace")
            target.write_bytes(CARD, with_license(card, license).encode())
        target.remove(WORK)
    return names
