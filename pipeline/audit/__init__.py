"""Stage 4: measure instances against the configuration they were built with.

`measures` sums counts and histograms over the rows, `checks` judges them, `report` renders the web page, and `decode`
turns rows back into readable tokens for the report and for ``clozeworks show``.
"""
