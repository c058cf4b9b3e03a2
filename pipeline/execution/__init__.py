"""How a stage runs, and how its files are written: the only package that knows runners, files and directories.

Stages are cut into `units` of work, which run in `workers` (processes on this machine) or on Apache `beam`. `storage`
opens local and remote paths, `directory` is the output directory (claim, lock, resume, finish), `shards` reads and
writes Parquet, `partitions` spreads rows over files, and `counters`, `progress` and `estimates` report.
"""
