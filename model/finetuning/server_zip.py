"""The predictions of all GLUE tasks below a folder, in one zip file for GLUE's server."""

import io
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from ...pipeline.errors import UserError
from ...pipeline.storage.directory import write_file
from ..tasks.glue import GLUE
from .results import results_folder

NAMES = [name for task in GLUE.values() for name in task.server_files.values()]


def write_server_zip(folder: str | Path, output: str) -> list[str]:
    """Write the files for GLUE's server below `folder` into the zip `output`; return the names of
    those not there.

    The server refuses a zip that lacks one. Raises `UserError` if there are none, or two of one
    name.
    """
    root = results_folder(folder, *NAMES)
    found: dict[str, Path] = {}
    for path in sorted(path for path in root.rglob("*.tsv") if path.name in NAMES):
        if other := found.get(path.name):
            raise UserError(
                f"{other} and {path} are both for GLUE's server; give the folder with one of them."
            )
        found[path.name] = path
    if not found:
        raise UserError(
            f"{folder} contains no predictions for GLUE's server; fine-tune on folders with test files."
        )
    content = io.BytesIO()
    with ZipFile(content, "w", ZIP_DEFLATED) as archive:
        for name, path in sorted(found.items()):
            archive.writestr(
                ZipInfo(name), path.read_bytes(), ZIP_DEFLATED
            )  # without the time of the file
    with write_file(output) as file:
        file.write(content.getvalue())
    return [name for name in NAMES if name not in found]
