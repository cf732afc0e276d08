"""The checks of `penstock doctor`: each looks at one thing and says what to do about what it finds."""

from __future__ import annotations

import os
import platform
import re
import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from penstock.config import Settings
from penstock.errors import ConfigError
from penstock.spark.boot import archive, defaults, jars
from penstock.spark.boot.classpath import class_path, spark_home
from penstock.spark.boot.java import find_java
from penstock.spark.boot.options import java_options
from penstock.spark.boot.startup import ARCHIVE_KEY, LOG4J

GIGABYTE = 10**9
PORTS = {
    8080: "HTTP API and web page",
    8081: "Arrow Flight SQL",
    15002: "Spark Connect",
    4040: "Spark's own web page",
}


class Status(StrEnum):
    """How bad a finding is: only a failure keeps penstock from working."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found, and what to do about it unless all is well."""

    name: str
    status: Status
    detail: str
    hint: str | None = None


def check_python(settings: Settings) -> list[Finding]:
    """The interpreter that runs this; one that is too old could not have come so far."""
    return [Finding("Python", Status.OK, f"{platform.python_version()} at {sys.executable}")]


def check_java(settings: Settings) -> list[Finding]:
    """The Java that will run Spark, and those that were passed over."""
    try:
        java = find_java(settings)
    except ConfigError as error:
        return [Finding("Java", Status.FAIL, error.message, error.hint)]
    detail = f"{java.version} at {java.home} (from {java.origin})"
    if not java.rejected:
        return [Finding("Java", Status.OK, detail)]
    passed = "; ".join(java.rejected)
    return [
        Finding("Java", Status.WARN, f"{detail}; passed over {passed}", "point JAVA_HOME to a Java 17 or 21")
    ]


def check_packages(settings: Settings) -> list[Finding]:
    """The Python packages whose version matters."""
    findings = []
    for package, title, good, wanted in (
        ("pyspark", "Spark", r"4\.1\.", "pyspark>=4.1.4,<4.2"),
        ("pyarrow", "Arrow", r"\d\d+\.", "pyarrow>=20"),
        ("pandas", "pandas", r"2\.", "pandas>=2.2,<3"),
    ):
        try:
            has = version(package)
        except PackageNotFoundError:
            has = "missing"
        if re.match(good, has):
            findings.append(Finding(title, Status.OK, has))
        else:
            findings.append(Finding(title, Status.FAIL, has, f"pip install '{wanted}'"))
    return findings


def check_machine(settings: Settings) -> list[Finding]:
    """Cores, and memory against what the driver will take."""
    machine = defaults.this_machine()
    driver = memory_of(defaults.effective(settings).get("spark.driver.memory", _UNSET).value)
    free = _available_memory()
    detail = f"{machine.memory / GIGABYTE:.1f} GB, {free / GIGABYTE:.1f} GB free, the driver may take {driver / GIGABYTE:.1f} GB"
    if driver > machine.memory:
        hint = "more than there is: set spark.driver.memory lower"
        memory = Finding("Memory", Status.FAIL, detail, hint)
    elif driver > free:
        hint = "close something, or set spark.driver.memory lower"
        memory = Finding("Memory", Status.WARN, detail, hint)
    else:
        memory = Finding("Memory", Status.OK, detail)
    return [Finding("Cores", Status.OK, str(machine.cores)), memory]


def check_home(settings: Settings) -> list[Finding]:
    """PENSTOCK_HOME, where jars, state and history live."""
    home = settings.home
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as error:
        hint = "make it writable, or set PENSTOCK_HOME to another folder"
        return [Finding("Home", Status.FAIL, f"{home}: {error.strerror}", hint)]
    space = os.statvfs(home)
    free = space.f_bavail * space.f_frsize
    detail = f"{home}, {free / GIGABYTE:.1f} GB free"
    if free < 2 * GIGABYTE:
        return [
            Finding(
                "Home", Status.WARN, detail, "jars and state need a few GB: free some, or move PENSTOCK_HOME"
            )
        ]
    return [Finding("Home", Status.OK, detail)]


def check_archive(settings: Settings) -> list[Finding]:
    """The class archive that makes Spark start quickly."""
    chosen = {key: item.value for key, item in defaults.effective(settings).items()}
    if chosen.get(ARCHIVE_KEY) == "false":
        return [
            Finding(
                "Class archive", Status.WARN, f"turned off by {ARCHIVE_KEY}", "unset it for a quicker start"
            )
        ]
    try:
        java = find_java(settings)
    except ConfigError:
        return []  # the check of Java reports it
    path = class_path(spark_home(), chosen)
    shared = archive.locate(settings.home, java, path, java_options(chosen, log4j=LOG4J))
    if archive.usable(shared, path) is None:
        detail = "not there yet: it is made in the background of the first session"
        return [Finding("Class archive", Status.OK, detail)]
    size = shared.classes.stat().st_size
    return [Finding("Class archive", Status.OK, f"{size / 10**6:.0f} MB at {shared.classes}")]


def check_connectors(settings: Settings) -> list[Finding]:
    """The installed connector jars, every byte of them."""
    broken = {path.name for path in jars.altered(settings)}
    installed = [status.name for status in jars.status(settings) if status.installed]
    detail = ", ".join(installed) if installed else "none installed; they come on first use"
    if not broken:
        return [Finding("Connectors", Status.OK, detail)]
    detail = f"{detail}; these files are not what the lock says: {', '.join(sorted(broken))}"
    return [Finding("Connectors", Status.FAIL, detail, "penstock connectors install NAME fetches them again")]


def check_network(settings: Settings) -> list[Finding]:
    """The loopback address and this machine's own name, both of which Spark needs."""
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
    except OSError as error:
        hint = "Spark and Python talk over 127.0.0.1: bring the loopback interface up"
        return [Finding("Loopback", Status.FAIL, f"127.0.0.1: {error.strerror}", hint)]
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError:
        hint = f"add a line '127.0.0.1 {name}' to /etc/hosts"
        return [Finding("Host name", Status.FAIL, f"'{name}' has no address", hint)]
    return [Finding("Host name", Status.OK, f"{name} is {address}")]


def check_ports(settings: Settings) -> list[Finding]:
    """The ports that the daemon and Spark take by default."""
    findings = []
    for port, use in PORTS.items():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                hint = "stop what listens there, or choose another port for the daemon"
                findings.append(Finding(f"Port {port}", Status.WARN, f"{use}: {error.strerror}", hint))
            else:
                findings.append(Finding(f"Port {port}", Status.OK, f"free ({use})"))
    return findings


def check_config(settings: Settings) -> list[Finding]:
    """The config files that were read."""
    files = ", ".join(map(str, settings.files))
    return [
        Finding(
            "Config files", Status.OK, files or f"none ({settings.home / 'config.toml'}, ./penstock.toml)"
        )
    ]


CHECKS: tuple[Callable[[Settings], list[Finding]], ...] = (
    check_python,
    check_java,
    check_packages,
    check_machine,
    check_home,
    check_archive,
    check_connectors,
    check_network,
    check_ports,
    check_config,
)

_UNSET = defaults.SparkSetting("spark.driver.memory", "1g", "Spark")


def memory_of(text: str) -> int:
    """The bytes of a size as Java writes it.

    >>> memory_of("512m"), memory_of("2g")
    (536870912, 2147483648)
    """
    match = re.fullmatch(r"\s*(\d+)\s*([kmgt]?)i?b?\s*", text.lower())
    if match is None:
        return 0
    # Spark reads a driver memory without a unit as mebibytes.
    return int(match[1]) << {"k": 10, "m": 20, "": 20, "g": 30, "t": 40}[match[2]]


def _available_memory() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
