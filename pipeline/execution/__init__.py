"""How a stage runs, and how its files are written: the only package that knows runners, files and directories.

A stage is a list of `phases` over units of work; `runner` hands the units to `workers` (processes on this machine) or
to Apache `beam`. `storage` opens local and remote paths, `hub` opens data sets, `directory` is the output directory
(claim, lock, resume, finish), `shards` reads and writes Parquet, and `partitions` spreads rows over files. `counters`
and `estimates` report.
"""
