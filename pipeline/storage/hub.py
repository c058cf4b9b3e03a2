"""Data sets of the Hugging Face Hub, or saved to disk, by ``datasets``: streamed, never downloaded
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from ..errors import UserError
from .directory import digest_of

PREFIX = "hf:"
DEFAULT_SPLIT = "train"
REACH_TIMEOUT_S = 15.0

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
    """The data set's own name: ``wikimedia/wikipedia``, or that of the folder."""
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
        """Its name in messages: ``wikimedia/wikipedia:20231101.en/train``."""
        return f"{self.source}:{self.part}"

    @property
    def is_on_disk(self) -> bool:
        """Whether it was saved to disk, so that any row can be read."""
        return hasattr(self.rows, "select")

    @property
    def schema(self) -> pa.Schema | None:
        """The types of the columns; None if they are known only after reading."""
        return self.rows.features.arrow_schema if self.rows.features else None


class _Name(NamedTuple):
    path: str
    revision: str | None
    parts: list[str]


def is_saved(path: str) -> bool:
    """Return whether `path` is a folder that ``save_to_disk`` of ``datasets`` wrote."""
    return any(
        all(os.path.isfile(os.path.join(path, name)) for name in names) for names in _SAVED_FILES
    )


def folder_of(name: str) -> str | None:
    """Return the folder of a name; None if the data set is one of the Hub."""
    path = _parse(name).path
    return path if os.path.isdir(path) else None


def splits(name: str) -> list[str]:
    """Return the splits of a data set; raise `UserError` if it, or the configuration in its name,
    does not exist.
    """
    named = _parse(name)
    return list(
        _saved_splits(named) if is_saved(named.path) else _streamed_splits(_pinned(named))[2]
    )


def named_split(name: str) -> str | None:
    """Return the split that a data set's name gives; raise `UserError` if there is no such split."""
    named = _parse(name)
    if is_saved(named.path):
        asked, found = named.parts, _saved_splits(named)
    else:
        (_, *asked), _, found = _streamed_splits(_pinned(named))
    return _chosen("split", asked[0], list(found), None, named) if asked else None


@lru_cache(maxsize=8)
def open_set(name: str, split: str | None = None) -> DataSet:
    """Open one split of a data set, by default the one that `name` gives, or train; no rows are
    read yet.

    Raise `UserError` if it does not exist (listing what does), or, within seconds, if the Hub
    cannot be reached.
    """
    named = _parse(name)
    return (
        _open_saved(named, split) if is_saved(named.path) else _open_streamed(_pinned(named), split)
    )


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
            f"{PREFIX}{name} is neither a folder nor the name of a data set: give {PREFIX}owner/name, "
            f"{PREFIX}owner/name:config, {PREFIX}owner/name:config:split or {PREFIX}FOLDER."
        )
    return _Name(match[1], match[2], parts)


def _open_saved(named: _Name, split: str | None) -> DataSet:
    found = _saved_splits(named)
    split = _chosen(
        "split", split or next(iter(named.parts), None), list(found), DEFAULT_SPLIT, named
    )
    rows = found[split]
    return DataSet(
        address=f"{PREFIX}{named.path}:{split}",
        source=_folder_name(named.path),
        part=split,
        num_bytes=rows.data.nbytes,
        digest=digest_of({"fingerprint": rows._fingerprint, "columns": str(rows.features)}),
        rows=rows,
    )


def _saved_splits(named: _Name) -> Mapping[Any, Any]:
    datasets = _datasets()
    try:
        found = datasets.load_from_disk(named.path)
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise UserError(
            f"{named.path} cannot be read as a saved data set: {_one_line(error)}."
        ) from error
    return (
        found
        if isinstance(found, datasets.DatasetDict)
        else {str(found.split or DEFAULT_SPLIT): found}
    )


def _open_streamed(named: _Name, split: str | None) -> DataSet:
    (config, *asked), builder, found = _streamed_splits(named)
    split = _chosen("split", split or next(iter(asked), None), list(found), DEFAULT_SPLIT, named)
    files = (builder.config.data_files or {}).get(split, [])
    if on_disk := os.path.isdir(named.path):
        sizes, content = [os.path.getsize(file) for file in files], _file_heads(files)
    else:
        sizes, content = (
            _sizes_on_hub(files, named),
            {"revision": named.revision, "config": config, "split": split},
        )
    pinned = named.path if on_disk else f"{named.path}@{named.revision}"
    return DataSet(
        address=f"{PREFIX}{pinned}:{config}:{split}",
        source=_folder_name(named.path) if on_disk else named.path,
        part=split if config == "default" else f"{config}/{split}",
        num_bytes=sum(sizes),
        digest=digest_of(content),
        rows=found[split],
    )


def _streamed_splits(named: _Name) -> tuple[list[str], Any, Mapping[Any, Any]]:
    """Return the parts of the name with the configuration filled in, the builder of the splits, and
    the splits.
    """
    datasets = _datasets()
    with _errors_as_user_error(named.path):
        configs = datasets.get_dataset_config_names(named.path, revision=named.revision)
        default = datasets.get_dataset_default_config_name(named.path, revision=named.revision)
        parts = named.parts
        if len(configs) == 1 and len(parts) == 1 and parts != configs:
            parts = [*configs, *parts]  # with a single configuration people name only the split
        config = _chosen("configuration", next(iter(parts), None), configs, default, named)
        builder = datasets.load_dataset_builder(named.path, config, revision=named.revision)
        return [config, *parts[1:]], builder, builder.as_streaming_dataset()


def _sizes_on_hub(files: Sequence[str], named: _Name) -> list[int]:
    from huggingface_hub import HfApi

    prefix = f"hf://datasets/{named.path}@{named.revision}/"
    paths = [file.removeprefix(prefix) for file in files if file.startswith(prefix)]
    found = (
        HfApi().get_paths_info(named.path, paths, revision=named.revision, repo_type="dataset")
        if paths
        else []
    )
    return [getattr(entry, "size", 0) for entry in found]


def _datasets() -> Any:
    """Return the library ``datasets``, kept from loading PyTorch to stream rows: 180 MB in every
    worker.
    """
    import datasets
    import datasets.config

    datasets.disable_progress_bars()
    if "torch" not in sys.modules:
        datasets.config.TORCH_AVAILABLE = False
    return datasets


def _pinned(named: _Name) -> _Name:
    """Ask the Hub once for the current revision of the data set, so that every process reads the
    same rows.
    """
    if os.path.isdir(named.path):
        return named
    _datasets()  # huggingface_hub comes with it: if both are missing, this is the one to name
    from huggingface_hub import HfApi, errors

    try:
        revision = (
            HfApi().dataset_info(named.path, revision=named.revision, timeout=REACH_TIMEOUT_S).sha
        )
    except errors.GatedRepoError as error:
        raise UserError(
            f"{PREFIX}{named.path} is gated: ask for access on its page, then `hf auth login`."
        ) from error
    except errors.RepositoryNotFoundError as error:
        reason = "is neither a folder here nor a data set of the Hugging Face Hub, or it is private"
        raise UserError(
            f"{PREFIX}{named.path} {reason}: correct the name, or run `hf auth login`."
        ) from error
    except errors.RevisionNotFoundError as error:
        raise UserError(
            f"{PREFIX}{named.path} has no revision {named.revision!r}: correct the part after @."
        ) from error
    except (
        Exception
    ) as error:  # the Hub's client changed its HTTP library, and its errors with it, more than once
        raise _unreachable(named.path, error) from error
    return named._replace(revision=revision)


@contextmanager
def _errors_as_user_error(path: str) -> Iterator[None]:
    """Turn what ``datasets`` raises for a data set that it cannot open into a `UserError`."""
    try:
        yield
    except ConnectionError as error:
        raise _unreachable(path, error) from error
    except RuntimeError as error:
        if "scripts are no longer supported" not in str(error):
            raise
        hint = f"try the Hub's own conversion, {PREFIX}{path}@refs/convert/parquet"
        raise UserError(
            f"{PREFIX}{path} uses a loading script, which datasets no longer runs: {hint}."
        ) from error
    except (OSError, ValueError) as error:
        raise UserError(f"{PREFIX}{path} cannot be opened: {_one_line(error)}.") from error


def _unreachable(path: str, error: Exception) -> UserError:
    return UserError(
        f"{PREFIX}{path} is not a folder here, and the Hugging Face Hub cannot be reached ({_one_line(error)}): check "
        f"the name and the network, or save_to_disk the data set on another machine and give {PREFIX}FOLDER."
    )


def _chosen(
    what: str, asked: str | None, found: list[str], default: str | None, named: _Name
) -> str:
    """Return the configuration or split that was asked for, or the default, or the only one."""
    if asked in found:
        return str(asked)
    if asked is None and default in found:
        return str(default)
    if asked is None and len(found) == 1:
        return found[0]
    name = PREFIX + named.path
    near = difflib.get_close_matches(asked or "", found, _MAX_LISTED) or found[:_MAX_LISTED]
    listed = ", ".join(near) + (
        f" and {len(found) - len(near)} more" if len(found) > len(near) else ""
    )
    if asked is None:
        raise UserError(f"{name} has several {what}s: choose one of {listed}.")
    raise UserError(f"{name} has no {what} {asked!r}; it has {listed}.")


def _file_heads(files: Sequence[str]) -> list[Any]:
    """Name files by their own names, sizes and the digest of their first bytes."""
    heads = []
    for path in files:
        with open(path, "rb") as file:
            heads.append(
                [os.path.basename(path), os.path.getsize(path), digest_of(file.read(_HEAD_BYTES))]
            )
    return heads


def _folder_name(path: str) -> str:
    return os.path.basename(os.path.abspath(path))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
