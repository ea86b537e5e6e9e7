"""The driver, which runs in the user's process: from settings to processes to a result."""
