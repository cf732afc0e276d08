"""Faults inside the JVM, on demand."""
