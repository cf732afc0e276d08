"""Names of jobs: what may be one, and what a mistyped one was meant to be."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.errors import ConfigError, suggest

LONGEST = 200


def checked(name: str) -> str:
    """The name, or an error when it cannot be one."""
    if not name or len(name) > LONGEST or not name.isprintable() or name != name.strip():
        raise ConfigError(
            f"{name[:50]!r} cannot be the name of a job",
            code="JOB_NAME",
            hint=f"use 1 to {LONGEST} printable characters, no blanks at its ends",
        )
    return name


def unknown(name: str, known: Iterable[str], *, place: str) -> ConfigError:
    """The error for a name that no job has."""
    return ConfigError(
        f"no job '{name}'", code="UNKNOWN_JOB", where=place, hint=suggest(name, known, what="job")
    )
