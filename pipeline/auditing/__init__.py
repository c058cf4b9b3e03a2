"""Stage 4: measure instances against the configuration they were built with.

`measures` sums counts and histograms over the rows, `checks` judges them, `report` and `decode`
make them readable.
"""
