"""The training loop and its parts: losses, optimizers, schedules, metrics."""
