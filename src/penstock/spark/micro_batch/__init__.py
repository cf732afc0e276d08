"""Streaming DataFrames: their plans, and the queries that run them."""
