"""What users drive: sessions, operations, streams and flows."""
