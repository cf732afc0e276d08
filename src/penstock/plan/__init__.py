"""Frozen plans: what a view computes, without knowing how."""
