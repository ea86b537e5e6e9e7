"""Roles of child processes: worker, server, evaluator, predictor, preparer, function, script."""
