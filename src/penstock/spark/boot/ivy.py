"""Fetch jars with the Ivy that is part of PySpark.

Ivy knows the public Maven repository, so no address is needed here. A file `ivysettings.xml` in `PENSTOCK_HOME` replaces
the settings below, for mirrors and closed networks. All jars of one call come from one JVM, and their POMs are not read:
the lock file already says what is needed.
"""

from __future__ import annotations

import ctypes
import re
import signal
import subprocess
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from xml.sax.saxutils import quoteattr

from penstock.config import Settings
from penstock.errors import ConnectorError, InternalError
from penstock.spark.boot.classpath import spark_home
from penstock.spark.boot.java import find_java
from penstock.spark.progress import Progress, Report

SETTINGS = """<ivysettings>
  <property name="ivy.checksums" value=""/>
  <settings defaultResolver="public"/>
  <timeout-constraints>
    <timeout-constraint name="policy" connectionTimeout="15000" readTimeout="60000"/>
  </timeout-constraints>
  <resolvers>
    <ibiblio name="public" m2compatible="true" usepoms="false" useMavenMetadata="false" timeoutConstraint="policy"/>
  </resolvers>
</ivysettings>
"""
JVM_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-Djava.awt.headless=true")
PATTERN = "[artifact]-[revision](-[classifier]).[ext]"
_POLL_SECONDS = 0.2
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


class Artifact(Protocol):
    """What Ivy must know of a jar."""

    @property
    def group(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def classifier(self) -> str | None: ...
    @property
    def size(self) -> int: ...
    @property
    def coordinate(self) -> str: ...
    @property
    def file_name(self) -> str: ...


def fetch(
    artifacts: Iterable[Artifact],
    work: Path,
    settings: Settings,
    *,
    progress: Report,
    what: str,
    hint: str | None = None,
) -> Path:
    """Download artifacts below `work` and return the directory that holds them; their content is not checked here."""
    wanted = tuple(artifacts)
    (work / "ivy.xml").write_text(module_descriptor(wanted), encoding="utf-8")
    own = settings.home / "ivysettings.xml"
    if not own.is_file():
        own = work / "ivysettings.xml"
        own.write_text(SETTINGS, encoding="utf-8")
    total = sum(artifact.size for artifact in wanted)
    progress(Progress(f"installing {what}", 0, total))
    output = _run(
        [
            *("-settings", str(own), "-cache", str(work / "cache"), "-ivy", str(work / "ivy.xml")),
            *("-confs", "default", "-retrieve", str(work / "jars" / PATTERN)),
        ],
        work,
        settings,
        on_poll=lambda: progress(
            Progress(f"installing {what}", _bytes_below(work / "cache"), total, "middle")
        ),
    )
    lost = [artifact for artifact in wanted if not (work / "jars" / artifact.file_name).is_file()]
    if lost:
        raise _failure(lost, output, what=what, hint=hint)
    progress(Progress(f"installed {what}", total, total, "end"))
    return work / "jars"


def module_descriptor(artifacts: Iterable[Artifact]) -> str:
    """Return the ivy.xml that asks for these artifacts, in all the versions given, and nothing that they depend on."""
    modules: dict[tuple[str, str, str], list[str]] = {}
    for artifact in artifacts:
        classifier = f" m:classifier={quoteattr(artifact.classifier)}" if artifact.classifier else ""
        modules.setdefault((artifact.group, artifact.name, artifact.version), []).append(
            f'<artifact name={quoteattr(artifact.name)} type="jar" ext="jar"{classifier}/>'
        )
    return "\n".join(
        [
            '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">',
            '  <info organisation="penstock" module="connectors"/>',
            '  <configurations><conf name="default"/></configurations>',
            "  <dependencies>",
            *(
                f"    <dependency org={quoteattr(group)} name={quoteattr(name)} rev={quoteattr(version)}"
                f' conf="default->*" transitive="false">{"".join(files)}</dependency>'
                for (group, name, version), files in modules.items()
            ),
            '    <conflict org="*" module="*" manager="all"/>',
            "  </dependencies>",
            "</ivy-module>",
            "",
        ]
    )


def _run(arguments: list[str], work: Path, settings: Settings, *, on_poll: Callable[[], None]) -> str:
    """Run Ivy to its end and return what it printed; it dies with this process, also when that is killed."""
    log = work / "ivy.log"
    command = [str(find_java(settings).executable), *JVM_OPTIONS, "-jar", str(ivy_jar()), *arguments]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=work, preexec_fn=_die_with_parent
        )
    try:
        while True:
            try:
                process.wait(_POLL_SECONDS)
                break
            except subprocess.TimeoutExpired:
                on_poll()
    finally:
        process.kill()
        process.wait()
    return log.read_text(encoding="utf-8", errors="replace")


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def ivy_jar() -> Path:
    """Return the Ivy that is part of PySpark."""
    for jar in (spark_home() / "jars").glob("ivy-*.jar"):
        return jar
    raise InternalError(f"no Ivy in {spark_home() / 'jars'}", hint="install pyspark again")


def _bytes_below(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*.jar*"):
        with suppress(OSError):  # Ivy renames its partial files
            total += path.stat().st_size
    return total


def _failure(lost: list[Artifact], output: str, *, what: str, hint: str | None) -> ConnectorError:
    names = ", ".join(artifact.coordinate for artifact in lost)
    unreachable = re.search(
        r"UnknownHost|ConnectException|Connection refused|timed out|SocketException|Host .* not found", output
    )
    reason = "the repository cannot be reached" if unreachable else "the repository does not have it"
    return ConnectorError(
        f"cannot install {what}: {reason}\n  missing: {names}",
        code="CONNECTOR_UNREACHABLE" if unreachable else "CONNECTOR_NOT_FOUND",
        hint=hint,
        retryable=bool(unreachable),
    )
