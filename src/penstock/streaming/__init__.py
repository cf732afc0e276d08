"""Streaming queries: the builder, the writer, and the life of what it starts."""
