"""What the system has of the servers that do not come as jars or wheels."""

from __future__ import annotations

import os
import pwd
import re
import shutil
from pathlib import Path

POSTGRES_PLACES = ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin", "usr/local/pgsql/bin", "opt/homebrew/bin")


def postgres_programs() -> Path | None:
    """Return the folder with `initdb` and `postgres`, the newest when there are several."""
    found = [path for place in POSTGRES_PLACES for path in Path("/").glob(f"{place}/initdb")]
    if found:
        return max(found, key=lambda path: [int(number) for number in re.findall(r"\d+", str(path))]).parent
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


def postgres_user() -> str | None:
    """Return the user that PostgreSQL must run as when we are root, which it refuses to run as."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"
