"""Measure instances against the configuration they were built with.

`measures` sums counts and histograms over the rows, `checks` judges them (with `label_checks`, by
the rules of `verdict`), `report` and `decode` make them readable.
"""
