"""The JVM's class path: PySpark's own jars first and always in the same order, then connectors, then configuration."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from penstock.errors import ConfigError

# The jars that most classes come from are searched first.
FIRST = ("spark-", "scala-library", "hadoop-client-api")
# Native parts of libraries, by system: those of other systems can never be loaded.
NATIVE = re.compile(r"-(linux|osx|windows)-(x86_64|aarch_64|riscv64)\.jar$")


@dataclass(frozen=True, slots=True)
class ClassPath:
    """What the JVM searches, in order; an archive of classes stays valid as long as `base` is the beginning."""

    base: tuple[Path, ...]
    before: tuple[Path, ...] = ()
    after: tuple[Path, ...] = ()

    @property
    def text(self) -> str:
        """The value of `java -cp`."""
        return ":".join(str(entry) for entry in (*self.before, *self.base, *self.after))


@cache
def spark_home() -> Path:
    """The folder of the installed PySpark, found without importing it."""
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            "PySpark is not installed", code="SPARK_MISSING", hint="pip install 'pyspark>=4.1.4,<4.2'"
        )
    return Path(spec.submodule_search_locations[0]).resolve()


def class_path(
    home: Path, conf: Mapping[str, str], *, jars: Sequence[Path] = (), folders: Sequence[Path] = ()
) -> ClassPath:
    """Return the class path of a driver with these settings, connector jars and configuration folders.

    `spark.driver.extraClassPath` comes first, as under spark-submit, so that it can replace classes of Spark.
    """
    names = sorted(entry.name for entry in os.scandir(home / "jars") if entry.name.endswith(".jar"))
    base = tuple(home / "jars" / name for name in sorted(names, key=_rank) if not _foreign(name))
    extra = conf.get("spark.driver.extraClassPath", "")
    return ClassPath(
        base=base,
        before=tuple(Path(entry) for entry in extra.split(":") if entry),
        after=(*jars, *folders),
    )


def _rank(name: str) -> int:
    return 0 if name.startswith(FIRST) else 1


def _foreign(name: str) -> bool:
    """Whether a jar holds only native code of another system."""
    match = NATIVE.search(name)
    machine = {"arm64": "aarch_64", "aarch64": "aarch_64", "AMD64": "x86_64"}.get(
        platform.machine(), platform.machine()
    )
    system = {"Darwin": "osx", "Windows": "windows"}.get(platform.system(), "linux")
    return match is not None and match.groups() != (system, machine)
