"""Real servers for tests: each is a context manager with `start`, `stop` and `kill`, and ends with pytest, however that ends."""
