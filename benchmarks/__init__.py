"""Side-by-side measurements against named peers; each module prints a table with ratios from one run."""
