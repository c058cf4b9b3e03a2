"""Errors that the command line reports in one line."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """The user's input is wrong; the message names the fault and says what to do.

    The command line prints the message on one line and exits with code 2, without a traceback.
    """


class RunError(Exception):
    """The run failed for a reason other than its input; exit code 1."""


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a hint for the end of a message: the name that was probably meant, or all of them.

    >>> did_you_mean("biuld", ["ingest", "vocab", "build"])
    '; did you mean build'
    """
    possible_names = list(names)
    close_names = get_close_matches(name, possible_names, n=1)
    if close_names:
        return f"; did you mean {close_names[0]}"
    if possible_names:
        return f"; choose from {', '.join(possible_names)}"
    return ""


EXTRAS = {
    "data": (
        "apache_beam",
        "babel",
        "chardet",
        "datasets",
        "fsspec",
        "huggingface_hub",
        "py3langid",
        "rensa",
        "sentencex",
        "tiktoken",
    ),
    "dask": ("dask", "distributed"),
    "search": ("duckdb",),
    "train": ("torch", "safetensors", "tensorboard", "sklearn", "scipy"),
}
"""The packages that each extra of clozeworks installs, for advice when one is missing."""


def how_to_install(error: ModuleNotFoundError) -> str:
    """Return the end of a message: what is missing, and the extra that has it; "" if none has."""
    package = str(error.name).split(".")[0]  # of `scipy.stats`, scipy
    for extra, packages in EXTRAS.items():
        if package in packages:
            ways = f"pip install 'clozeworks[{extra}]', or in a clone ./install.sh '.[{extra}]'"
            return f"{error.name}, which is not installed: {ways}."
    return ""
