"""Operators: each turns input deltas and its own state into an output delta, one per file."""
