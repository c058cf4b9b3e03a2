"""Define the click commands. They parse, make a config and call ``pipeline`` or ``model``; no logic
is their own.

One module per command; `main` is the entry point, `options` turns config fields into options,
`output` prints, `progress` shows how far a command is, `process` sets up the process.
"""
