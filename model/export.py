"""Copy a model directory for the Hugging Face Hub: the model, its tokenizer and its card alone."""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..pipeline import storage
from ..pipeline.cards import check_license
from ..pipeline.errors import UserError
from ..pipeline.storage.directory import WORK, OutputDirectory, locked
from ..pipeline.storage.stage import VOCABULARY_FILES
from .card import CARD, with_license
from .checkpoint import CONFIG, POOLING, SENTENCE_FILES, TASK, WEIGHTS, Checkpoint

if TYPE_CHECKING:
    from .onnx.export import OnnxFile

NEEDED = (WEIGHTS, CONFIG, CARD)
ONNX_FILES = ("onnx/model.onnx", "onnx/model_quantized.onnx")
FILES = (*NEEDED, TASK, *SENTENCE_FILES, POOLING, *VOCABULARY_FILES, *ONNX_FILES)


class Exported(NamedTuple):
    """What `export` wrote."""

    sizes: dict[str, int]
    """Bytes of each file by its name."""
    onnx: "list[OnnxFile]"


def export(
    directory: str | Path,
    output: str | Path,
    license: str | None = None,
    *,
    onnx: bool = False,
    int8: bool = False,
    dev: str | Path | None = None,
    overwrite: bool = False,
) -> Exported:
    """Copy the model in `directory`, a finished run, to `output`.

    `license` replaces the licence in the card. With `onnx`, and `int8`, `onnx.export.write_onnx`
    adds graphs, scored on `dev`, and the card says what was measured. Files of a model exported to
    `output` before are replaced or removed. Raises `UserError` if there is no finished model, and
    for an `output` that holds anything else or, unless `overwrite`, another card, which may have
    been edited.
    """
    directory = str(directory)
    output = str(output)
    check_license(license)
    if not onnx and (int8 or dev):
        raise UserError("`int8` and `dev` have no effect without `onnx`.")
    Checkpoint.open(directory)  # raises if it is damaged
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
    sources = {name: storage.join(directory, name) for name in names}
    with tempfile.TemporaryDirectory() as folder:
        graphs: list[OnnxFile] = []
        if onnx:
            # Imported late: it needs the packages of [onnx].
            from .onnx.export import write_onnx

            graphs = write_onnx(directory, Path(folder), int8=int8, dev=dev)
            sources |= {graph.name: storage.join(folder, graph.name) for graph in graphs}
            card += onnx_section(graphs).encode()
        _check_output(output, card, overwrite=overwrite)
        _copy(sources, card, output)
    paths = {name: storage.join(output, name) for name in sources}
    sizes = {name: storage.find_files(path)[path] for name, path in paths.items()}
    return Exported(sizes, graphs)


def _copy(sources: Mapping[str, str], card: bytes, output: str) -> None:
    """Copy files to their names in `output`, and remove what an earlier export left there and this
    model lacks, such as the task.json of another.
    """
    target = OutputDirectory(output)
    outdated = [name for name in FILES if name not in sources]
    with locked(output):
        for name, path in sources.items():
            if name == CARD:
                continue  # its licence may have changed
            with storage.open_input(path) as source, target.write(name) as file:
                shutil.copyfileobj(source, file)
        target.write_bytes(CARD, card)
        target.remove(*outdated, WORK)


def onnx_section(graphs: "Sequence[OnnxFile]") -> str:
    """Return what the card says about the graphs, as Markdown."""
    metrics = list(graphs[0].scores)
    batches = list(graphs[0].milliseconds)
    header = ["file", "MB", "largest difference", *metrics]
    header += [f"ms, {num_rows} x 32 tokens" for num_rows in batches]
    lines = [
        "",
        "## ONNX",
        "",
        "Beside PyTorch in fp32, on rows of random tokens; times are those of the CPU that wrote "
        "the files.",
        "",
        f"| {' | '.join(header)} |",
        f"|{'---|' * len(header)}",
    ]
    for graph in graphs:
        cells = [f"`{graph.name}`", f"{graph.bytes / 1e6:.1f}", f"{graph.difference:.1e}"]
        cells += [f"{graph.scores[metric]:.4f}" for metric in metrics]
        cells += [f"{graph.milliseconds[num_rows]:.2f}" for num_rows in batches]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _check_output(output: str, card: bytes, *, overwrite: bool) -> None:
    present = storage.file_names(output)
    # Ignore hidden files, such as the .gitattributes of a Hub clone.
    others = [name for name in present if name not in FILES and not name.startswith(".")]
    if others:
        raise UserError(
            f"{output} already contains other files ({others[0]}, …). Choose another `output`."
        )
    if CARD not in present or overwrite:
        return
    if storage.read_bytes(storage.join(output, CARD)) != card:
        raise UserError(
            f"{output} contains another {CARD}, perhaps edited. Replace it with `overwrite`, "
            "or choose another `output`."
        )
