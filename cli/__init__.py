"""Define the click commands. They parse, make a config and call ``pipeline`` or ``model``; no logic
is their own.

One module per command; `main` is the entry point, `options` turns config fields into options,
`summary` prints the closing table, `training_progress` the live line of a run.
"""
