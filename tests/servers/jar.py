"""The jars that test servers run from, pinned beside this module and kept in the user's penstock folder."""

from __future__ import annotations

from pathlib import Path

from penstock import config
from penstock.spark.boot import jars
from penstock.spark.boot.java import find_java

LOCK = jars.Lock(Path(__file__).with_name("servers.lock.toml"))


def class_path(name: str) -> str:
    """Return the class path of a server, fetching its jars the first time."""
    settings = config.load()
    folder = settings.home / "test-servers" / name
    return ":".join(map(str, jars.ensure_jars(LOCK[name].jars, folder, settings, what=f"test server {name}")))


def java(*, memory: str) -> list[str]:
    """Return the beginning of a Java command that starts quickly."""
    executable = find_java(config.load()).executable
    return [
        str(executable),
        f"-Xmx{memory}",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
    ]
