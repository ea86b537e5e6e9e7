"""Losses and metrics by name, known without torch so that a misspelling is found at once."""

LOSS_NAMES = ("bce", "bce_prob", "cross_entropy", "huber", "mae", "mse", "nll")

METRIC_NAMES = (
    "accuracy",
    "auc",
    "calibration",
    "f1",
    "gauc",
    "logloss",
    "mae",
    "normalized_entropy",
    "precision",
    "recall",
    "rmse",
    "top5",
)
