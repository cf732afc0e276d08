"""Columns of Arrow as values for JSON, and back, exactly in Spark's types."""
