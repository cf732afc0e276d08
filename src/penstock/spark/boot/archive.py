"""The class archive (AppCDS) that makes the JVM start quickly: which one fits, and whether it is whole.

An archive is a file of parsed and verified classes that the JVM maps instead of reading jars. It fits one build of Java,
one version of Spark, one class path and one set of JVM options; all of that is in its name. `archive_build` makes it,
once, in the background. Whatever is missing, foreign or damaged is not used, without a message.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.spark.boot.classpath import ClassPath
from penstock.spark.boot.java import Java

FORMAT = 1
HEAD_BYTES = 4096
# A damaged archive, or one of another machine, is silently left out; whatever the JVM says goes to its log.
QUIET = ("-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr")


@dataclass(frozen=True, slots=True)
class Archive:
    """A class archive of this key: where it is, or would be."""

    folder: Path
    key: str

    @property
    def classes(self) -> Path:
        """The archive itself."""
        return self.folder / f"{self.key}.jsa"

    @property
    def card(self) -> Path:
        """What the archive was made of; written last, so that an archive without it is not there."""
        return self.folder / f"{self.key}.json"


def locate(home: Path, java: Java, class_path: ClassPath, options: Sequence[str]) -> Archive:
    """Return the place of the archive for this Java, class path and options."""
    parts = {
        "format": FORMAT,
        "java": [str(java.executable), java.version, java.build],
        "class path": [[str(path), *stamp(path)] for path in class_path.base],
        "options": [option for option in options if shapes_classes(option)],
    }
    text = json.dumps(parts, sort_keys=True)
    return Archive(folder_in(home), hashlib.sha256(text.encode()).hexdigest()[:20])


def folder_in(home: Path) -> Path:
    """The folder of archives under its real name: a card holds names, and a home that is reached by a link has the
    same archives."""
    return (home / "cds").resolve()


def shapes_classes(option: str) -> bool:
    """Whether a JVM option may decide if an archive fits; sizes, properties and logging do not."""
    return not option.startswith(("-D", "-Xmx", "-Xms", "-Xlog"))


def stamp(path: Path) -> list[int]:
    """What changes when a file changes: its size and time."""
    try:
        status = path.stat()
    except OSError:
        return [-1, -1]
    return [status.st_size, status.st_mtime_ns]


def head(path: Path) -> str:
    """A digest of where an archive begins: the JVM checks this part and goes on without an archive that fails."""
    with path.open("rb") as source:
        return hashlib.sha256(source.read(HEAD_BYTES)).hexdigest()


def usable(archive: Archive, class_path: ClassPath) -> ClassPath | None:
    """Return the class path to run with this archive, or None when there is no whole archive.

    It is the given one, except that jars with a signature are replaced by copies without: the JVM does not archive
    classes of signed jars.
    """
    try:
        card = json.loads(archive.card.read_text(encoding="utf-8"))
        base = tuple(Path(entry) for entry in card["class path"])
        files = {Path(name): values for name, values in card["files"].items()}
        unchanged = head(archive.classes) == card["head"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if (
        not unchanged
        or archive.classes not in files
        or any(stamp(path) != values for path, values in files.items())
    ):
        return None
    if len(base) != len(class_path.base):
        return None
    with contextlib.suppress(OSError):
        os.utime(archive.card)  # its last use: the oldest are deleted first
    return replace(class_path, base=base)


def use(archive: Archive) -> tuple[str, ...]:
    """The JVM options that use the archive."""
    return (f"-XX:SharedArchiveFile={archive.classes}", *QUIET)


def discard(archive: Archive) -> None:
    """Forget an archive that did harm."""
    for path in (archive.card, archive.classes):
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
