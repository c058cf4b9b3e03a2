"""Figures of each class; needs no PyTorch."""

from typing import TypedDict


class ClassReport(TypedDict, total=False):
    """What a model makes of each class."""

    classes: dict[str, dict[str, int | float]]
    """By the class's name: ``precision``, ``recall``, ``f1``, and ``count``, how many examples have
    the class.
    """
    confusion: list[list[int]]
    """How many examples of a class (the row) are taken for which (the column), in the order of
    `classes`.
    """
