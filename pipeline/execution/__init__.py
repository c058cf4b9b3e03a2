"""Run stages; the only package that knows runners.

A stage is a list of `phases` over units of work; `runner` hands the units to `workers` on this
machine or to Apache `beam`. Between phases, rows lie in tables (`temporary`).
"""
