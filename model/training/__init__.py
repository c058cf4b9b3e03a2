"""Parts of both training loops: ranks, devices, the optimizer, logs."""
