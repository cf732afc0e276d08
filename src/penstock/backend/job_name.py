"""Names of jobs: which ones are valid, and what a mistyped one was meant to be."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.errors import ConfigError, suggest

LONGEST = 200


def check_job_name(name: str) -> str:
    """Return the name, or raise when no job can have it."""
    if not name or len(name) > LONGEST or not name.isprintable() or name != name.strip():
        raise ConfigError(
            f"{name[:50]!r} cannot be the name of a job",
            code="JOB_NAME",
            hint=f"use 1 to {LONGEST} printable characters, no blanks at its ends",
        )
    return name


def unknown_job(name: str, names: Iterable[str], *, location: str) -> ConfigError:
    """Return the error for a name that no job has."""
    return ConfigError(
        f"no job '{name}'", code="UNKNOWN_JOB", where=location, hint=suggest(name, names, what="job")
    )
