"""The folders pipeline/, model/ and cli/ are the packages clozeworks.pipeline, clozeworks.model and
clozeworks.cli.

package/ is what they lie in: clozeworks itself.
"""

from setuptools import find_packages, setup

FOLDERS = find_packages(include=["pipeline*", "model*", "cli*"])
setup(packages=["clozeworks", *(f"clozeworks.{folder}" for folder in FOLDERS)])
