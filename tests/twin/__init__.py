"""Naive twins: what the kernel computes, recomputed with plain Python dictionaries."""
