"""Open data sets of the Hugging Face Hub, or from disk, by ``datasets``: streamed, never downloaded
as a whole.

The name of a data set is ``owner/name[@revision][:config[:split]]``, with or without ``hf:`` before
it, or the path of a folder: one that ``save_to_disk`` wrote (``PATH[:split]``), or one of data
files (``PATH[:config[:split]]``). `open_set` opens a split, `splits` lists them, and `named_split`
returns the one that a name ends in. ``datasets`` is imported only inside the functions; this module
needs neither Beam nor sentencex.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from ..errors import UserError
from ..storage.directory import digest_of

PREFIX = "hf:"
DEFAULT_SPLIT = "train"
REACH_TIMEOUT_S = 15.0

# A folder that has all files of one of these groups was written by save_to_disk.
_SAVED_FILES = (("dataset_dict.json",), ("state.json", "dataset_info.json"))
_HEAD_BYTES = 1 << 16
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
    digest: str
    """Identifies its content."""
    rows: Any
    """A ``datasets.Dataset`` if it was saved to disk, else a ``datasets.IterableDataset``."""

    @property
    def name(self) -> str:
        """For messages: ``wikimedia/wikipedia:20231101.en/train``."""
        return f"{self.source}:{self.part}"

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
    for names in _SAVED_FILES:
        if all(os.path.isfile(os.path.join(path, name)) for name in names):
            return True
    return False


def folder_of(name: str) -> str | None:
    """Return the folder that a name gives; None for a data set of the Hub."""
    path = _parse(name).path
    return path if os.path.isdir(path) else None


def splits(name: str) -> list[str]:
    """Return the splits of a data set; raise `UserError` if there is no such set."""
    return list(_find(_parse(name)).rows_by_split)


def named_split(name: str) -> str | None:
    """Return the split that a data set's name ends in; raise `UserError` if it does not exist."""
    found = _find(_parse(name))
    return found.asked_split and _split_of(found, name)


def open_set(name: str, split: str | None = None) -> DataSet:
    """Open one split of a data set, by default the one that `name` ends in, or train; no rows are
    read yet.

    A process keeps to the revision of the Hub's set that it opened first. Raise `UserError` if
    there is no such set, or, within seconds, if the Hub cannot be reached.
    """
    named = _parse(name)
    if os.path.isdir(named.path):
        return _open(named, split)  # again, because its files may have changed
    return _open_on_hub(named, split)


def opened_set(name: str) -> AbstractContextManager[DataSet]:
    """Open a data set like a file that is read in a ``with`` block."""
    return nullcontext(open_set(name))


class _Name(NamedTuple):
    """The parts of a data set's name."""

    path: str
    """A folder, or owner/name on the Hub."""
    revision: str | None
    parts: tuple[str, ...]
    """After colons: of a saved set its split, of others a configuration, perhaps a split too."""


def _parse(name: str) -> _Name:
    """Return the parts of a data set's name; raise `UserError` if it cannot be one."""
    name = name.removeprefix(PREFIX)
    if os.path.isdir(name):
        return _Name(name, None, ())
    head, *parts = name.split(":")
    if os.path.isdir(head):
        return _Name(head, None, tuple(parts))
    match = _HUB_NAME.fullmatch(head)
    if match is None or len(parts) > 2:
        raise UserError(
            f"{PREFIX}{name} is neither a folder nor the name of a data set: "
            f"give {PREFIX}owner/name, {PREFIX}owner/name:config, "
            f"{PREFIX}owner/name:config:split or {PREFIX}FOLDER."
        )
    return _Name(match[1], match[2], tuple(parts))


class _Found(NamedTuple):
    """What a name leads to."""

    rows_by_split: Mapping[Any, Any]
    asked_split: str | None
    revision: str | None
    config: str
    """Empty for a set that was saved to disk."""
    files_by_split: Mapping[Any, Sequence[str]]


@lru_cache(maxsize=8)
def _open_on_hub(named: _Name, split: str | None) -> DataSet:
    return _open(named, split)


def _open(named: _Name, split: str | None) -> DataSet:
    found = _find(named)
    split = _split_of(found._replace(asked_split=split or found.asked_split), named.path)
    rows = found.rows_by_split[split]
    files = found.files_by_split.get(split, [])
    is_folder = os.path.isdir(named.path)
    path = named.path if is_folder else f"{named.path}@{found.revision}"
    address = f"{PREFIX}{path}:{found.config}:{split}"
    part = f"{found.config}/{split}"
    if found.config in ("", "default"):  # the library's name for files without configurations
        part = split
    if not found.config:
        address = f"{PREFIX}{path}:{split}"
        num_bytes = rows.data.nbytes
        content: Any = {"fingerprint": rows._fingerprint, "columns": str(rows.features)}
    elif is_folder:
        num_bytes = sum(os.path.getsize(file) for file in files)
        content = []
        for file in files:
            with open(file, "rb") as opened:
                head = opened.read(_HEAD_BYTES)
            # Not their times: a copy elsewhere has the same content.
            content.append([os.path.basename(file), os.path.getsize(file), digest_of(head)])
    else:
        num_bytes = _bytes_on_hub(files, path)
        content = {"revision": found.revision, "config": found.config, "split": split}
    return DataSet(
        address=address,
        source=os.path.basename(os.path.abspath(path)) if is_folder else named.path,
        part=part,
        num_bytes=num_bytes,
        digest=digest_of(content),
        rows=rows,
    )


def _split_of(found: _Found, name: str) -> str:
    """Return the split that was asked for, or train, or the only one."""
    available = list(map(str, found.rows_by_split))
    split = found.asked_split
    if split is None and DEFAULT_SPLIT in available:
        split = DEFAULT_SPLIT
    if split is None and len(available) == 1:
        (split,) = available
    if split not in available:
        listed = ", ".join(available)
        name = PREFIX + name.removeprefix(PREFIX)
        if split is None:
            raise UserError(f"{name} has several splits: choose one of {listed}.")
        raise UserError(f"{name} has no split {split!r}; it has {listed}.")
    return split


def _find(named: _Name) -> _Found:
    """Open all splits of a data set, at the revision that the Hub has now."""
    datasets = _datasets()
    if is_saved(named.path):
        asked_split = named.parts[0] if named.parts else None
        return _Found(_saved_splits(named.path), asked_split, None, "", {})
    path = named.path
    revision = None
    if not os.path.isdir(path):
        revision = _newest_revision(named)
    try:
        configs = datasets.get_dataset_config_names(path, revision=revision)
        parts = named.parts
        if len(configs) == len(parts) == 1 and parts != tuple(configs):
            # With a single configuration people name only the split.
            parts = (*configs, *parts)
        config, asked_split = (*parts, None, None)[:2]
        # An unknown configuration is refused with those that there are.
        builder = datasets.load_dataset_builder(path, config, revision=revision)
        rows_by_split = builder.as_streaming_dataset()
    except (OSError, ValueError, RuntimeError) as error:
        raise _not_opened(path, error) from error
    files_by_split = builder.config.data_files or {}
    return _Found(rows_by_split, asked_split, revision, builder.config.name, files_by_split)


def _saved_splits(folder: str) -> Mapping[Any, Any]:
    datasets = _datasets()
    try:
        saved = datasets.load_from_disk(folder)
    except IndexError:
        # `datasets` may save no file for a data set without rows, which it then cannot load.
        raise UserError(f"{folder} is, or contains, a data set without rows: remove it.") from None
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise UserError(
            f"{folder} cannot be read as a saved data set: {_one_line(error)}."
        ) from error
    if isinstance(saved, datasets.DatasetDict):
        return saved
    return {str(saved.split or DEFAULT_SPLIT): saved}


def _datasets() -> Any:
    """Return the library ``datasets``, kept from loading PyTorch to stream rows: 180 MB in every
    worker.
    """
    import datasets
    import datasets.config

    datasets.disable_progress_bars()
    # Not by USE_TORCH, which is read at the import: the caller may have imported it before us. A
    # program that has loaded PyTorch already may rely on it.
    if "torch" not in sys.modules:
        datasets.config.TORCH_AVAILABLE = False
    return datasets


def _newest_revision(named: _Name) -> str | None:
    """Return the commit that a data set of the Hub is at, so that every process reads the same
    rows.
    """
    from huggingface_hub import HfApi, errors

    try:
        info = HfApi().dataset_info(named.path, revision=named.revision, timeout=REACH_TIMEOUT_S)
    except errors.RepositoryNotFoundError as error:  # a gated one too
        raise UserError(
            f"{PREFIX}{named.path} is neither a folder here nor a data set of the Hugging Face Hub "
            "that you may read: correct the name, or, if it is private or gated, ask for access "
            "and run `hf auth login`."
        ) from error
    except errors.HfHubHTTPError as error:
        name = f"{named.path}@{named.revision}" if named.revision else named.path
        raise _not_opened(name, error) from error
    except Exception as error:
        # No narrower class: the Hub's client changed its HTTP library, and its errors with it, more
        # than once.
        raise UserError(
            f"{PREFIX}{named.path} is not a folder here, and the Hugging Face Hub cannot be "
            f"reached ({_one_line(error)}): check the name and the network, or save_to_disk the "
            f"data set on another machine and give {PREFIX}FOLDER."
        ) from error
    return info.sha


def _bytes_on_hub(files: Sequence[str], path: str) -> int:
    """Return the size of files of a data set at a revision."""
    from huggingface_hub import HfApi

    prefix = f"hf://datasets/{path}/"
    paths = [file.removeprefix(prefix) for file in files if file.startswith(prefix)]
    if not paths:
        return 0
    name, _, revision = path.partition("@")
    infos = HfApi().get_paths_info(name, paths, revision=revision, repo_type="dataset")
    return sum(getattr(info, "size", 0) for info in infos)  # a folder has none


def _not_opened(name: str, error: Exception) -> UserError:
    reason = _one_line(error)
    if "script" in reason:
        reason += "; append @refs/convert/parquet to its name to read the Hub's own conversion"
    return UserError(f"{PREFIX}{name} cannot be opened: {reason}.")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
