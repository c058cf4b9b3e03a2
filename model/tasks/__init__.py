"""The fine-tuning tasks: one file per kind of task, behind the one interface of `task.Task`."""
