"""What both training loops share: ranks, devices, the optimizer, logs."""
