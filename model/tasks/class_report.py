"""Figures of each class; needs no PyTorch."""

from msgspec import Struct


class ClassReport(Struct, frozen=True, kw_only=True):
    """How well a model answers each class."""

    classes: dict[str, dict[str, int | float]] = {}
    """By the class's name: ``precision``, ``recall``, ``f1``, and ``count``, how many examples have
    the class. Empty if the task has no classes.
    """
    confusion: list[list[int]] = []
    """How many examples of a class (the row) are taken for which (the column), in the order of
    `classes`; empty if that is not counted.
    """
