"""How a stage runs, and how its files are written: the only package that knows runners, files and directories.

A stage is a list of `phases` over units of work; `runner` hands the units to `workers` on this machine or to Apache
`beam`. The other modules open files and data sets, own the output directory, and read and write rows.
"""
