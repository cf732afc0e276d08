"""Rows: schemas, conversions into Arrow, deltas and key hashing."""
