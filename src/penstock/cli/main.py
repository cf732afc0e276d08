"""The entry point of the `penstock` command."""

from __future__ import annotations


def main() -> int:
    """Run the command line and return its exit code."""
    raise SystemExit("penstock: no commands yet")
