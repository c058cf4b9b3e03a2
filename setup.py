"""The folders pipeline/, model/ and cli/ are the packages clozeworks.pipeline, clozeworks.model and clozeworks.cli."""

from setuptools import find_packages, setup

FOLDERS = find_packages(include=["pipeline*", "model*", "cli*"])
setup(packages=[f"clozeworks.{folder}" for folder in FOLDERS])
