"""The predictions of all GLUE tasks in one zip file for GLUE's server."""

from collections.abc import Sequence
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

NAMES = (
    "CoLA.tsv",
    "SST-2.tsv",
    "MRPC.tsv",
    "QQP.tsv",
    "STS-B.tsv",
    "MNLI-m.tsv",
    "MNLI-mm.tsv",
    "AX.tsv",
    "QNLI.tsv",
    "RTE.tsv",
    "WNLI.tsv",
)
"""The server refuses a zip without all of these."""


def write_server_zip(folders: Sequence[Path], output: Path) -> list[str]:
    """Write the files for GLUE's server in `folders` into the zip `output`; return the names of
    those not there, all if there is nothing to write.
    """
    files: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.tsv")):
            if path.name in NAMES:
                files[path.name] = path
    if files:
        with ZipFile(output, "w", ZIP_DEFLATED) as archive:
            for name in sorted(files):
                # A `ZipInfo` has no time, so the same predictions make the same bytes.
                archive.writestr(ZipInfo(name), files[name].read_bytes(), ZIP_DEFLATED)
    return [name for name in NAMES if name not in files]
