"""What runs in a child process: worker, server, evaluator, function, script, predictor."""
