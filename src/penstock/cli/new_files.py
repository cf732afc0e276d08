"""Files that a command makes for the user, and never over others."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import ConfigError


def write_new_files(files: Mapping[str, str]) -> None:
    """Write texts to paths and print the paths; refuses, before anything is written, when one of them is there."""
    there = [path for path in files if Path(path).exists()]
    if there:
        names = ", ".join(f"'{path}'" for path in there)
        raise ConfigError(
            f"{names} {'is' if len(there) == 1 else 'are'} there already",
            code="PIPELINE_EXISTS",
            hint="choose another name, or remove what is there",
        )
    for path, text in files.items():
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            with Path(path).open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise ConfigError(
                f"cannot write '{path}': {error.strerror}", code="PIPELINE_FILE", hint="choose another folder"
            ) from error
        print(path)
    sys.stdout.flush()
