"""Columns of Arrow as values that JSON can say, and back, exactly in Spark's types."""
