"""Connector jars: which ones a connector needs, whether they are here, and getting them.

The lock file beside this module pins every jar by its Maven coordinates, size and SHA-256. Jars live in one folder per
user (`PENSTOCK_HOME/jars`) and get there by one atomic rename each, after their checksum was compared. The modification
time of a good jar is set to a value derived from its checksum: a jar that still has its size and that time was not
touched since, so that a start costs one `stat` per jar and no reading.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from penstock.config import Settings
from penstock.errors import ConfigError, ConnectorError, suggest
from penstock.spark.progress import Progress, Report, show

LOCK_FILE = Path(__file__).parents[1] / "connectors.lock.toml"
WORK_PREFIX = ".install-"


@dataclass(frozen=True, slots=True)
class Jar:
    """One pinned file of a Maven repository."""

    group: str
    name: str
    version: str
    classifier: str | None
    size: int
    sha256: str

    @property
    def coordinate(self) -> str:
        """`group:name:version`, with `:classifier` when there is one."""
        return ":".join(part for part in (self.group, self.name, self.version, self.classifier) if part)

    @property
    def file_name(self) -> str:
        """The file's name, the same in the repository and in the cache."""
        return "-".join(part for part in (self.name, self.version, self.classifier) if part) + ".jar"

    @property
    def stamp_ns(self) -> int:
        """The modification time that marks a copy of this jar as compared with its checksum."""
        return (946_684_800 + int(self.sha256[:7], 16)) * 1_000_000_000


@dataclass(frozen=True, slots=True)
class Connector:
    """A named set of jars; the first one is the connector itself, the others are what it needs."""

    name: str
    about: str
    jars: tuple[Jar, ...]

    @property
    def version(self) -> str:
        return self.jars[0].version

    @property
    def size(self) -> int:
        return sum(jar.size for jar in self.jars)


@dataclass(frozen=True, slots=True)
class ConnectorStatus:
    """One line of `penstock connectors list`."""

    name: str
    installed: bool
    size: int
    version: str
    about: str
    coordinates: tuple[str, ...]


@dataclass(frozen=True)
class Lock(Mapping[str, Connector]):
    """The connectors of a lock file, read when first asked for."""

    path: Path

    @cached_property
    def _table(self) -> dict[str, Connector]:
        content = tomllib.loads(self.path.read_text(encoding="utf-8"))
        return {name: _connector(name, entry) for name, entry in content.items()}

    def __getitem__(self, name: str) -> Connector:
        if name in self._table:
            return self._table[name]
        raise ConfigError(
            f"unknown connector '{name}'",
            code="UNKNOWN_CONNECTOR",
            hint=suggest(name, self._table, what="connector"),
        )

    def __contains__(self, name: object) -> bool:
        return name in self._table

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


CONNECTORS = Lock(LOCK_FILE)


def needed(names: Iterable[str], lock: Mapping[str, Connector] = CONNECTORS) -> tuple[Jar, ...]:
    """Return the jars of some connectors, each once; an unknown name is an error that suggests the nearest."""
    return tuple(dict.fromkeys(jar for name in names for jar in lock[name].jars))


def coordinates(names: Iterable[str]) -> tuple[str, ...]:
    """Return the Maven coordinates of the jars of some connectors.

    >>> coordinates(["avro"])
    ('org.apache.spark:spark-avro_2.13:4.1.1',)
    """
    return tuple(jar.coordinate for jar in needed(names))


def folder(settings: Settings) -> Path:
    """Return where the jars of this user live."""
    return settings.home / "jars"


def ensure(names: Iterable[str], settings: Settings, *, progress: Report = show) -> tuple[Path, ...]:
    """Return the paths of the jars of some connectors, installing those that are missing."""
    names = tuple(names)
    return ensure_jars(
        needed(names),
        folder(settings),
        settings,
        progress=progress,
        what=", ".join(names),
        install=f"penstock connectors install {' '.join(names)}",
    )


def ensure_jars(
    jars: tuple[Jar, ...],
    directory: Path,
    settings: Settings,
    *,
    progress: Report = show,
    what: str = "jars",
    install: str = "",
) -> tuple[Path, ...]:
    """Return the paths of some jars in a directory, fetching those that are missing or altered."""
    if _missing(jars, directory):
        directory.mkdir(parents=True, exist_ok=True)
        with _alone(directory, lambda: progress(Progress(f"waiting for another process to install {what}"))):
            for left in directory.glob(f"{WORK_PREFIX}*"):
                shutil.rmtree(left, ignore_errors=True)
            missing = _missing(jars, directory)
            if missing:
                _install(missing, directory, settings, progress=progress, what=what, install=install)
    return tuple(directory / jar.file_name for jar in jars)


def status(settings: Settings) -> list[ConnectorStatus]:
    """Return one row per connector, in the order of the lock."""
    directory = folder(settings)
    return [
        ConnectorStatus(
            name=connector.name,
            installed=all(_is_good(jar, directory) for jar in connector.jars),
            size=connector.size,
            version=connector.version,
            about=connector.about,
            coordinates=tuple(jar.coordinate for jar in connector.jars),
        )
        for connector in CONNECTORS.values()
    ]


def altered(settings: Settings) -> tuple[Path, ...]:
    """Read every installed jar and return those whose content is not what the lock says."""
    directory = folder(settings)
    present = [jar for jar in needed(CONNECTORS) if (directory / jar.file_name).is_file()]
    return tuple(
        directory / jar.file_name for jar in present if sha256_of(directory / jar.file_name) != jar.sha256
    )


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _connector(name: str, entry: Mapping[str, Any]) -> Connector:
    return Connector(name, entry["about"], tuple(_jar(jar) for jar in entry["jars"]))


def _jar(entry: Mapping[str, Any]) -> Jar:
    group, name, version, *classifier = entry["coordinate"].split(":")
    return Jar(
        group,
        name,
        version,
        classifier[0] if classifier else None,
        size=entry["size"],
        sha256=entry["sha256"],
    )


def _missing(jars: tuple[Jar, ...], directory: Path) -> tuple[Jar, ...]:
    return tuple(jar for jar in jars if not _is_good(jar, directory))


def _is_good(jar: Jar, directory: Path) -> bool:
    path = directory / jar.file_name
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    if status.st_size != jar.size:
        return False
    if status.st_mtime_ns == jar.stamp_ns:
        return True
    if sha256_of(path) != jar.sha256:
        return False
    with suppress(OSError):  # a cache that others own stays as it is; it is read in full every time
        _stamp(path, jar)
    return True


def _stamp(path: Path, jar: Jar) -> None:
    os.utime(path, ns=(jar.stamp_ns, jar.stamp_ns))


@contextmanager
def _alone(directory: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the directory's lock; the system lets go of it when the process ends, however it ends."""
    with (directory / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _install(
    jars: tuple[Jar, ...], directory: Path, settings: Settings, *, progress: Report, what: str, install: str
) -> None:
    from penstock.spark.boot import ivy

    hint = f"with a connection to the Maven repository, run: {install}" if install else None
    with tempfile.TemporaryDirectory(prefix=WORK_PREFIX, dir=directory) as work:
        fetched = ivy.fetch(jars, Path(work), settings, progress=progress, what=what, hint=hint)
        wrong = []
        for jar in jars:
            path = fetched / jar.file_name
            actual = sha256_of(path)
            if actual != jar.sha256:
                wrong.append(f"{jar.coordinate}: expected sha256 {jar.sha256}, got {actual}")
                continue
            _stamp(path, jar)
            path.replace(directory / jar.file_name)
    if wrong:
        raise ConnectorError(
            f"refused {'a jar' if len(wrong) == 1 else 'jars'} with another checksum than the lock file's\n  "
            + "\n  ".join(wrong),
            code="CONNECTOR_CHECKSUM",
            where=what,
            hint="nothing of it was kept; a proxy or mirror may have changed the file: fetch it from a repository you trust",
        )
