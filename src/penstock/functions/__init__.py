"""Scalar and aggregate functions with exactly Spark's meaning, on Arrow arrays."""
