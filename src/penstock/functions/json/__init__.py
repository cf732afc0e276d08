"""JSON as Spark's functions read and write it: Jackson's tokens, Spark's conversions, paths."""
