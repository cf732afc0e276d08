"""Scalar functions by family, each under the name of its Catalyst class."""
