"""Making the class archive, in a process of its own that nobody waits for.

    python -m penstock.spark.boot.archive_build   (with a `BuildOrder` as JSON on standard input)

It runs a training session to learn which classes a typical one loads, lets the JVM dump them under a temporary name, tries
the result, and moves it into place. A lock keeps two builds from running at once; the JVMs inherit it, so it is held until
the last of them is gone. A kill at any moment leaves only temporary files, which the next build deletes.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from penstock import config
from penstock.config import Settings
from penstock.spark.boot import archive_training, gateway, startup
from penstock.spark.boot.archive import QUIET, Archive, discard, folder_in, head, stamp, usable
from penstock.spark.boot.classpath import ClassPath
from penstock.spark.boot.java import Java

DELAY_SECONDS = 3.0  # the command that found no archive is probably still busy
STEP_SECONDS = 900.0
NICENESS = 10  # a tenth of what an ordinary process gets: on a busy machine it must still come to its end
KEEP = 3
ATTEMPTS = 3
FORGET_SECONDS = 24 * 3600
TEMPORARY = "build-"
SIGNATURES = (".SF", ".RSA", ".DSA", ".EC")


@dataclass(frozen=True, slots=True)
class BuildOrder:
    """What to build: everything that the archive's key was made of."""

    home: str
    key: str
    java: Sequence[str]
    options: Sequence[str]
    class_path: Sequence[str]
    environment: dict[str, str]
    background: bool = True


def start(archive: Archive, launch: gateway.Launch, *, home: Path) -> int | None:
    """Start a build in the background; return the process's id, or None when it is not worth one."""
    try:
        with _locked(archive.folder) as lock:
            if lock is None or _attempts(archive) >= ATTEMPTS:
                return None
        process = _spawn(_order(archive, launch, home, background=True), archive.folder)
    except OSError:
        return None
    threading.Thread(target=process.wait, name="penstock-archive", daemon=True).start()
    return process.pid


def make(settings: Settings) -> bool:
    """Build the archive for these settings now and wait for it: for images of containers, benchmarks and tests."""
    plan = startup.decide(settings)
    if plan.class_archive is None or plan.quick is not None:
        return plan.quick is not None
    plan.class_archive.folder.mkdir(parents=True, exist_ok=True)
    process = _spawn(
        _order(plan.class_archive, plan.launch, settings.home, background=False), plan.class_archive.folder
    )
    return process.wait() == 0 and usable(plan.class_archive, plan.launch.class_path) is not None


def main() -> int:
    """Build what standard input asks for."""
    order = BuildOrder(**json.load(sys.stdin))
    if order.background:
        os.nice(NICENESS)
        lower(os.getpid())
        time.sleep(DELAY_SECONDS)
    return 0 if build(order) else 1


def _order(archive: Archive, launch: gateway.Launch, home: Path, *, background: bool) -> BuildOrder:
    return BuildOrder(
        home=str(home),
        key=archive.key,
        java=(str(launch.java.executable), launch.java.version, launch.java.build),
        options=launch.options,
        class_path=tuple(str(path) for path in launch.class_path.base),
        environment=dict(launch.environment),
        background=background,
    )


def _spawn(order: BuildOrder, folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "build.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock.spark.boot.archive_build"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd="/",
            env=config.child_environment({"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}),
            start_new_session=True,
        )
    assert process.stdin is not None
    with process.stdin as pipe:
        pipe.write(json.dumps(asdict(order)).encode())
    return process


def lower(pid: int) -> None:
    """Let a process group give way to all others; under Linux's automatic groups a process's own niceness does not."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(NICENESS), encoding="ascii")


def build(order: BuildOrder) -> bool:
    """Build the archive unless it is there; return whether it is there now.

    While somebody else is at it, a build in the background gives up, and one that is waited for waits.
    """
    archive = Archive(folder_in(Path(order.home)), order.key)
    class_path = ClassPath(base=tuple(map(Path, order.class_path)))
    with _locked(archive.folder, wait=not order.background) as lock:
        if lock is None:
            return False
        if usable(archive, class_path) is not None:
            return True
        discard(archive)
        _sweep(archive.folder)
        _count_attempt(archive)
        folder = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=archive.folder))
        try:
            _make(order, archive, folder, lock)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        _attempts_file(archive).unlink(missing_ok=True)
        _prune(archive)
    return True


def _make(order: BuildOrder, archive: Archive, folder: Path, lock: int) -> None:
    java = Java(Path(order.java[0]), Path(order.java[0]).parent.parent, order.java[1], "", order.java[2])
    base = tuple(_unsigned(Path(jar), archive.folder / "jars") for jar in order.class_path)
    launch = gateway.Launch(
        java=java,
        class_path=ClassPath(base=base),
        options=tuple(order.options),
        environment=order.environment,
    )
    classes = folder / "classes.txt"
    archive_training.run(
        replace(launch, archive_options=(f"-XX:DumpLoadedClassList={classes}", *QUIET)),
        home=Path(order.home),
        started=lambda jvm: lower(jvm.process.pid) if order.background else None,
    )
    dump = folder / "classes.jsa"
    shaping = [option for option in order.options if not option.startswith("-D")]
    common = [
        str(java.executable),
        *shaping,
        "-cp",
        launch.class_path.text,
        f"-XX:SharedArchiveFile={dump}",
    ]
    _run([*common, "-Xshare:dump", f"-XX:SharedClassListFile={classes}", "-Xlog:disable"], lock)
    _run([*common, "-Xshare:on", "-version"], lock)
    os.replace(dump, archive.classes)
    copies = [path for path in base if path.parent == archive.folder / "jars"]
    card = {
        "class path": [str(path) for path in base],
        "head": head(archive.classes),
        "files": {str(path): stamp(path) for path in (archive.classes, *copies)},
    }
    draft = folder / "card.json"
    draft.write_text(json.dumps(card), encoding="utf-8")
    os.replace(draft, archive.card)


def _run(command: list[str], lock: int) -> None:
    subprocess.run(
        command, check=True, stdin=subprocess.DEVNULL, timeout=STEP_SECONDS, pass_fds=(lock,), cwd="/"
    )


def _unsigned(jar: Path, folder: Path) -> Path:
    """The jar itself, or a copy of it without the signature that would keep its classes out of the archive."""
    with zipfile.ZipFile(jar) as source:
        names = source.namelist()
        signed = {name for name in names if name.startswith("META-INF/") and name.endswith(SIGNATURES)}
        if not signed:
            return jar
        folder.mkdir(exist_ok=True)
        size, modified = stamp(jar)
        copy = folder / f"{jar.stem}-{size:x}-{modified:x}.jar"
        draft = copy.with_suffix(".draft")
        with zipfile.ZipFile(draft, "w") as target:
            for name in names:
                if name not in signed:
                    content = source.read(name)
                    entry = zipfile.ZipInfo(name, source.getinfo(name).date_time)
                    target.writestr(
                        entry, _plain_manifest(content) if name == "META-INF/MANIFEST.MF" else content
                    )
    if copy.exists() and copy.read_bytes() == draft.read_bytes():
        draft.unlink()  # other archives were made with this very file
    else:
        os.replace(draft, copy)
    return copy


def _plain_manifest(content: bytes) -> bytes:
    """The main section of a manifest: the others hold the digests of the signature."""
    return content.replace(b"\r\n", b"\n").split(b"\n\n", 1)[0] + b"\n\n"


@contextlib.contextmanager
def _locked(folder: Path, *, wait: bool = False) -> Iterator[int | None]:
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(lock)
        yield None
        return
    try:
        yield lock
    finally:
        os.close(lock)


def _sweep(folder: Path) -> None:
    """Delete what killed builds left; the lock is ours, so none of it is in use."""
    for path in folder.glob(f"{TEMPORARY}*"):
        shutil.rmtree(path, ignore_errors=True)
    for path in folder.glob("*.jsa"):
        if not path.with_suffix(".json").exists():
            path.unlink(missing_ok=True)


def _prune(archive: Archive) -> None:
    """Keep the archives that were used last."""
    cards = sorted(
        (card for card in archive.folder.glob("*.json") if card != archive.card),
        key=lambda card: card.stat().st_mtime,
        reverse=True,
    )
    for card in cards[KEEP - 1 :]:
        discard(Archive(archive.folder, card.stem))


def _attempts_file(archive: Archive) -> Path:
    return archive.folder / f"{archive.key}.attempts"


def _attempts(archive: Archive) -> int:
    """How often a build of this archive was begun and not finished; after a day that is forgotten."""
    with contextlib.suppress(OSError):
        status = _attempts_file(archive).stat()
        if time.time() - status.st_mtime < FORGET_SECONDS:
            return status.st_size
        _attempts_file(archive).unlink()
    return 0


def _count_attempt(archive: Archive) -> None:
    with _attempts_file(archive).open("ab") as out:
        out.write(b".")


if __name__ == "__main__":
    sys.exit(main())
