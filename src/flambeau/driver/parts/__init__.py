"""Work on parts of data: predictions, evaluations and the preparation of features."""
