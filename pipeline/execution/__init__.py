"""The only place that knows runners, files and directories: how a stage is run, and where what it makes lies."""
