"""Open data sets of the Hugging Face Hub, or from disk, by ``datasets``: streamed, never downloaded
as a whole.

The name of a data set is ``owner/name[@revision][:config[:split]]``, with or without ``hf:`` before
it, or the path of a folder: one that ``save_to_disk`` wrote (``PATH[:split]``), or one of data
files (``PATH[:config[:split]]``). ``datasets`` is imported only inside the functions.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from ..errors import UserError
from ..parsing import digest_of
from ..storage import file_names
from .streams import digest_of_file

PREFIX = "hf:"
DEFAULT_SPLIT = "train"

_HUB_NAME = re.compile(r"([\w-][\w.-]*(?:/[\w-][\w.-]*)?)(?:@([^:]+))?")


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """One split of a data set, open for reading."""

    address: str
    """Opens the very same rows again, in any process: the name with all its parts."""
    source: str
    """The data set's own name, ``wikimedia/wikipedia``, or the folder's."""
    part: str
    """Configuration and split: ``20231101.en/train``."""
    num_bytes: int
    """Size of the rows or of the files; 0 if unknown."""
    content: Any
    """Identifies its content, with that of its `files`."""
    files: Sequence[str]
    rows: Any
    """A ``datasets.Dataset`` if it was saved to disk, else a ``datasets.IterableDataset``."""

    @property
    def name(self) -> str:
        """For messages: ``wikimedia/wikipedia:20231101.en/train``."""
        return f"{self.source}:{self.part}"

    @property
    def digest(self) -> str:
        """Identifies its content. The files are read for it."""
        # Not their times: a copy elsewhere has the same content.
        files = []
        for file in self.files:
            num_bytes = os.path.getsize(file)
            files.append([os.path.basename(file), num_bytes, digest_of_file(file, num_bytes)])
        return digest_of(files or self.content)

    @property
    def is_on_disk(self) -> bool:
        """Whether it was saved to disk, so that any row can be read."""
        return hasattr(self.rows, "select")

    @property
    def schema(self) -> pa.Schema | None:
        """The types of the columns; None if they are known only after reading."""
        if not self.rows.features:
            return None
        return self.rows.features.arrow_schema


def is_saved(path: str) -> bool:
    """Return whether `path` is a folder that ``save_to_disk`` of ``datasets`` wrote."""
    files = set(file_names(path))
    return "dataset_dict.json" in files or {"state.json", "dataset_info.json"} <= files


def folder_of(name: str) -> str | None:
    """Return the folder that a name gives; None for a data set of the Hub."""
    path, _, _ = _parse(name)
    return path if os.path.isdir(path) else None


def splits(name: str) -> list[str]:
    """Return the splits of a data set; raise `UserError` if there is no such set."""
    return list(_find(name).rows_by_split)


def named_split(name: str) -> str | None:
    """Return the split that a data set's name ends in; raise `UserError` if it does not exist."""
    found = _find(name)
    return found.asked_split and found.choose_split(found.asked_split)


def open_set(name: str, split: str | None = None) -> DataSet:
    """Open one split of a data set, by default the one that `name` ends in, or train; no rows are
    read yet. A process keeps to the revision of the Hub's set that it opened first.
    """
    if folder_of(name):
        return _open(name, split)  # again, because its files may have changed
    return _open_once(name, split)


class _Found(NamedTuple):
    """The splits of a data set, and what its name says."""

    path: str
    """A folder, or owner/name on the Hub."""
    revision: str | None
    config: str
    """Empty for a set that was saved to disk."""
    asked_split: str | None
    rows_by_split: Any
    files_by_split: Mapping[Any, Sequence[str]]

    def choose_split(self, split: str | None) -> str:
        """Return the split that is asked for, or train, or the only one."""
        available = list(map(str, self.rows_by_split))
        if split is None:
            split = available[0] if len(available) == 1 else DEFAULT_SPLIT
        if split not in available:
            listed = ", ".join(available)
            raise UserError(f"{PREFIX}{self.path} has no split {split!r}; it has {listed}.")
        return split


def _open(name: str, asked_split: str | None) -> DataSet:
    found = _find(name)
    path, config = found.path, found.config
    split = found.choose_split(asked_split or found.asked_split)
    rows = found.rows_by_split[split]
    files = found.files_by_split.get(split, [])
    source = path
    if os.path.isdir(path):
        source = os.path.basename(os.path.abspath(path))
    else:
        path = f"{path}@{found.revision}"
    content: Any = None
    is_folder = os.path.isdir(path)
    if not config:
        num_bytes = rows.data.nbytes
        content = {"fingerprint": rows._fingerprint, "columns": str(rows.features)}
    elif is_folder:
        folder = os.path.realpath(path)
        # Files of the Hub's cache are links: snapshots/6f3a…/a.parquet to blobs/91c2….
        within = (f"{folder}/", f"{folder.partition('/snapshots/')[0]}/blobs/")
        for file in files:
            if not os.path.realpath(file).startswith(within):
                raise UserError(
                    f"{PREFIX}{path} lists {file}, which is outside of it: copy it into the folder."
                )
        num_bytes = sum(map(os.path.getsize, files))
    else:
        from huggingface_hub import HfApi

        prefix = f"hf://datasets/{path}/"
        paths = [file.removeprefix(prefix) for file in files if file.startswith(prefix)]
        num_bytes = 0
        if paths:
            infos = HfApi().get_paths_info(
                found.path, paths, revision=found.revision, repo_type="dataset"
            )
            num_bytes = sum(getattr(info, "size", 0) for info in infos)  # a folder has none
        content = {"revision": found.revision, "config": config, "split": split}
    part = f"{config}/{split}"
    if config in ("", "default"):  # the library's name for files without configurations
        part = split
    return DataSet(
        address=f"{PREFIX}{path}:{config}:{split}" if config else f"{PREFIX}{path}:{split}",
        source=source,
        part=part,
        num_bytes=num_bytes,
        content=content,
        files=files if is_folder else (),
        rows=rows,
    )


_open_once = lru_cache(maxsize=8)(_open)


def _parse(name: str) -> tuple[str, str | None, list[str]]:
    """Return the folder, or owner/name on the Hub, the revision, and the parts after colons."""
    name = name.removeprefix(PREFIX)
    if os.path.isdir(name):
        return name, None, []
    head, *parts = name.split(":")
    if os.path.isdir(head):
        return head, None, parts
    match = _HUB_NAME.fullmatch(head)
    if match is None or len(parts) > 2:
        raise UserError(
            f"{PREFIX}{name} is neither a folder nor the name of a data set: "
            f"give {PREFIX}owner/name[@revision][:config[:split]] or {PREFIX}FOLDER[:split]."
        )
    return match[1], match[2], parts


def _find(name: str) -> _Found:
    """Open all splits of a data set, at the revision that the Hub has now."""
    import datasets
    import datasets.config
    from huggingface_hub import HfApi

    datasets.disable_progress_bars()
    # Streaming rows needs no PyTorch: 180 MB in every worker. Not by USE_TORCH, which is read at
    # the import: the caller may have imported `datasets` before. A program that has loaded PyTorch
    # already may rely on it.
    if "torch" not in sys.modules:
        datasets.config.TORCH_AVAILABLE = False
    path, revision, parts = _parse(name)
    if is_saved(path):
        try:
            saved = datasets.load_from_disk(path)
        # `datasets` may save no file for a data set without rows: an IndexError.
        except (OSError, LookupError, ValueError, pa.ArrowException) as error:
            raise UserError(
                f"{path} is damaged or has no rows: it cannot be read as a saved data set "
                f"({_one_line(error)})."
            ) from error
        if not isinstance(saved, datasets.DatasetDict):
            saved = {str(saved.split or DEFAULT_SPLIT): saved}
        return _Found(path, None, "", parts[0] if parts else None, saved, {})
    try:
        if not os.path.isdir(path):
            # The commit that it is at, so that all processes read the same.
            info = HfApi().dataset_info(path, revision=revision, timeout=15.0)
            revision = info.sha
        configs = datasets.get_dataset_config_names(path, revision=revision)
        if len(configs) == len(parts) == 1 and parts != configs:
            # With a single configuration people name only the split.
            parts = [*configs, *parts]
        config, asked_split = (*parts, None, None)[:2]
        # An unknown configuration is refused with those that there are.
        builder = datasets.load_dataset_builder(path, config, revision=revision)
        rows_by_split = builder.as_streaming_dataset()
    # No narrower class: the Hub's client changed its HTTP library, and its errors with it, more
    # than once.
    except Exception as error:
        reason = _one_line(error)
        advice = "check the name and the network, or give a folder that save_to_disk wrote"
        if "script" in reason:
            advice = "append @refs/convert/parquet to its name to read the Hub's own conversion"
        raise UserError(f"{PREFIX}{path} cannot be opened ({reason}): {advice}.") from error
    files_by_split = builder.config.data_files or {}
    return _Found(path, revision, builder.config.name, asked_split, rows_by_split, files_by_split)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
