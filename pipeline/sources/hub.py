"""Open data sets of the Hugging Face Hub, or from disk, by ``datasets``: streamed, never downloaded
as a whole.

The name of a data set is ``owner/name[@revision][:config[:split]]``, with or without ``hf:`` before
it, or the path of a folder: one that ``save_to_disk`` wrote (``PATH[:split]``), or one of data
files (``PATH[:config[:split]]``). ``datasets`` is imported only inside the functions; this module
needs neither Beam nor sentencex.
"""

import difflib
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
_MAX_LISTED = 10
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


class _Name(NamedTuple):
    """The parts of a data set's name."""

    path: str
    """A folder, or owner/name on the Hub."""
    revision: str | None
    parts: list[str]
    """After colons: of a saved set its split, of others a configuration, perhaps a split too."""


def is_saved(path: str) -> bool:
    """Return whether `path` is a folder that ``save_to_disk`` of ``datasets`` wrote."""
    for names in _SAVED_FILES:
        if all(os.path.isfile(os.path.join(path, name)) for name in names):
            return True
    return False


def folder_of(name: str) -> str | None:
    """Return the folder that a name gives; None for a data set of the Hub."""
    path = _parse(name).path
    if os.path.isdir(path):
        return path
    return None


def splits(name: str) -> list[str]:
    """Return the splits of a data set; raise `UserError` if it, or the configuration in its name,
    does not exist.
    """
    _, available = _asked_and_available(_parse(name))
    return available


def named_split(name: str) -> str | None:
    """Return the split that a data set's name gives; raise `UserError` if it does not exist."""
    named = _parse(name)
    asked, available = _asked_and_available(named)
    if asked is None:
        return None
    return _choose("split", asked, available, None, named)


def _asked_and_available(named: _Name) -> tuple[str | None, list[str]]:
    """Return the split that a name gives, if any, and all that the data set has."""
    if is_saved(named.path):
        return _first(named.parts), list(_saved_splits(named))
    opened = _open_builder(_pinned(named))
    return opened.asked_split, list(opened.splits)


def open_set(name: str, split: str | None = None) -> DataSet:
    """Open one split of a data set, by default the one that `name` gives, or train; no rows are
    read yet.

    A process reopens a folder only if its files have changed, and keeps to the revision of the
    Hub's set that it opened first. Raise `UserError` if there is no such set (listing what there
    is), or, within seconds, if the Hub cannot be reached.
    """
    return _open_set(name, split, _files_of(_parse(name).path))


def _files_of(path: str) -> tuple[tuple[str, int, int], ...]:
    """Return path, size and time of change of the files below a folder; none for a name of the
    Hub.
    """
    files = []
    for folder, _, names in os.walk(path):
        for name in names:
            file = os.path.join(folder, name)
            status = os.stat(file)
            files.append((file, status.st_size, status.st_mtime_ns))
    return tuple(sorted(files))


@lru_cache(maxsize=8)
def _open_set(name: str, split: str | None, files: object) -> DataSet:
    """Open a split; `files` only tell an open one from one that has changed since."""
    named = _parse(name)
    if is_saved(named.path):
        return _open_saved(named, split)
    return _open_streamed(_pinned(named), split)


def opened_set(name: str) -> AbstractContextManager[DataSet]:
    """Open a data set like a file that is read in a ``with`` block."""
    return nullcontext(open_set(name))


def _parse(name: str) -> _Name:
    """Return the parts of a data set's name; raise `UserError` if it cannot be one."""
    name = name.removeprefix(PREFIX)
    if os.path.isdir(name):
        return _Name(name, None, [])
    head, *parts = name.split(":")
    if os.path.isdir(head):
        return _Name(head, None, parts)
    match = _HUB_NAME.fullmatch(head)
    if match is None or len(parts) > 2:
        raise UserError(
            f"{PREFIX}{name} is neither a folder nor the name of a data set: "
            f"give {PREFIX}owner/name, {PREFIX}owner/name:config, "
            f"{PREFIX}owner/name:config:split or {PREFIX}FOLDER."
        )
    return _Name(match[1], match[2], parts)


def _open_saved(named: _Name, split: str | None) -> DataSet:
    rows_of = _saved_splits(named)
    split = _choose("split", split or _first(named.parts), list(rows_of), DEFAULT_SPLIT, named)
    rows = rows_of[split]
    return DataSet(
        address=f"{PREFIX}{named.path}:{split}",
        source=_folder_name(named.path),
        part=split,
        num_bytes=rows.data.nbytes,
        digest=digest_of({"fingerprint": rows._fingerprint, "columns": str(rows.features)}),
        rows=rows,
    )


def _saved_splits(named: _Name) -> Mapping[Any, Any]:
    """Return the rows of each split of a saved data set."""
    datasets = _datasets()
    try:
        saved = datasets.load_from_disk(named.path)
    except IndexError:
        # `datasets` may save no file for a data set without rows, which it then cannot load.
        raise UserError(
            f"{named.path} is, or contains, a data set without rows: remove it."
        ) from None
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise UserError(
            f"{named.path} cannot be read as a saved data set: {_one_line(error)}."
        ) from error
    if isinstance(saved, datasets.DatasetDict):
        return saved
    return {str(saved.split or DEFAULT_SPLIT): saved}


def _open_streamed(named: _Name, split: str | None) -> DataSet:
    opened = _open_builder(named)
    config = opened.config
    asked = split or opened.asked_split
    split = _choose("split", asked, list(opened.splits), DEFAULT_SPLIT, named)
    files = (opened.builder.config.data_files or {}).get(split, [])
    if os.path.isdir(named.path):
        path = named.path
        source = _folder_name(named.path)
        sizes = [os.path.getsize(file) for file in files]
        content: Any = _file_heads(files)
    else:
        path = f"{named.path}@{named.revision}"
        source = named.path
        sizes = _sizes_on_hub(files, named)
        content = {"revision": named.revision, "config": config, "split": split}
    part = f"{config}/{split}"
    if config == "default":  # the library's name for data files without configurations
        part = split
    return DataSet(
        address=f"{PREFIX}{path}:{config}:{split}",
        source=source,
        part=part,
        num_bytes=sum(sizes),
        digest=digest_of(content),
        rows=opened.splits[split],
    )


class _Opened(NamedTuple):
    """A configuration of a data set that is streamed."""

    config: str
    asked_split: str | None
    builder: Any
    splits: Mapping[Any, Any]


def _open_builder(named: _Name) -> _Opened:
    """Open the configuration that a name gives, or the default one."""
    datasets = _datasets()
    try:
        configs = datasets.get_dataset_config_names(named.path, revision=named.revision)
        default = datasets.get_dataset_default_config_name(named.path, revision=named.revision)
        asked_config = _first(named.parts)
        asked_split = _first(named.parts[1:])
        if len(configs) == len(named.parts) == 1 and asked_config not in configs:
            # With a single configuration people name only the split.
            asked_split = asked_config
            asked_config = configs[0]
        config = _choose("configuration", asked_config, configs, default, named)
        builder = datasets.load_dataset_builder(named.path, config, revision=named.revision)
        return _Opened(config, asked_split, builder, builder.as_streaming_dataset())
    except (OSError, ValueError, RuntimeError) as error:
        raise _not_opened(named.path, error) from error


def _first(parts: Sequence[str]) -> str | None:
    if parts:
        return parts[0]
    return None


def _sizes_on_hub(files: Sequence[str], named: _Name) -> list[int]:
    from huggingface_hub import HfApi

    prefix = f"hf://datasets/{named.path}@{named.revision}/"
    paths = [file.removeprefix(prefix) for file in files if file.startswith(prefix)]
    if not paths:
        return []
    infos = HfApi().get_paths_info(named.path, paths, revision=named.revision, repo_type="dataset")
    return [getattr(info, "size", 0) for info in infos]  # a folder has none


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


def _pinned(named: _Name) -> _Name:
    """Return the name with the revision that the Hub now has, so that every process reads the same
    rows.
    """
    if os.path.isdir(named.path):
        return named
    _datasets()  # huggingface_hub comes with it: if both are missing, this is the one to name
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
    return named._replace(revision=info.sha)


def _not_opened(name: str, error: Exception) -> UserError:
    reason = _one_line(error)
    if "script" in reason:
        reason += "; append @refs/convert/parquet to its name to read the Hub's own conversion"
    return UserError(f"{PREFIX}{name} cannot be opened: {reason}.")


def _choose(
    what: str, asked: str | None, available: list[str], default: str | None, named: _Name
) -> str:
    """Return the configuration or split that was asked for, or the default, or the only one.

    `what` is ``configuration`` or ``split``. Raise `UserError` listing those that are available,
    the most similar ones if there are many.
    """
    if asked is None:
        if default in available:
            return str(default)
        if len(available) == 1:
            return available[0]
    elif asked in available:
        return asked
    shown = difflib.get_close_matches(asked or "", available, _MAX_LISTED)
    shown = shown or available[:_MAX_LISTED]
    listed = ", ".join(shown)
    if len(available) > len(shown):
        listed += f" and {len(available) - len(shown)} more"
    name = PREFIX + named.path
    if asked is None:
        raise UserError(f"{name} has several {what}s: choose one of {listed}.")
    raise UserError(f"{name} has no {what} {asked!r}; it has {listed}.")


def _file_heads(files: Sequence[str]) -> list[Any]:
    """Identify files by their names, sizes and the digests of their first bytes."""
    heads = []
    for path in files:
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
        # Not their times: a copy on another machine has the same content.
        name = os.path.basename(path)
        heads.append([name, os.path.getsize(path), digest_of(head)])
    return heads


def _folder_name(path: str) -> str:
    return os.path.basename(os.path.abspath(path))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
