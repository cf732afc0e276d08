"""Spark's settings as penstock starts it: local defaults with their reasons, and the user's on top."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.config import Settings

DEFAULT_MASTER = "local[*,4]"
GIBIBYTE = 1 << 30


@dataclass(frozen=True, slots=True)
class SparkSetting:
    """One effective Spark setting: its value, where it came from, and why we chose it when we did."""

    key: str
    value: str
    origin: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """What defaults are derived from."""

    cores: int
    memory: int


def this_machine() -> Machine:
    """The cores and the memory that this process may use (its control group's limit counts)."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Machine(cores=len(os.sched_getaffinity(0)), memory=min([pages, *_group_limits()]))


def is_local(master: str) -> bool:
    """Whether this master runs its tasks inside the driver."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def local_cores(master: str, machine: Machine) -> int | None:
    """How many tasks a local master runs at once; None for a cluster.

    >>> local_cores("local[2,4]", Machine(8, 0)), local_cores("local", Machine(8, 0)), local_cores("yarn", Machine(8, 0))
    (2, 1, None)
    """
    if master == "local":
        return 1
    match = re.fullmatch(r"local\[\s*(\d+|\*)\s*(?:,\s*\d+\s*)?\]", master)
    if match is None:
        return None
    return machine.cores if match[1] == "*" else int(match[1])


def defaults(master: str, machine: Machine) -> tuple[SparkSetting, ...]:
    """Our choices for this master, each with its reason."""
    anywhere = [
        ("spark.ui.enabled", "false", "a port and 200 ms at every start for a page few open"),
        ("spark.ui.showConsoleProgress", "false", "progress is penstock's to print"),
        ("spark.log.level", "ERROR", "warnings are for those who look for them"),
        ("spark.sql.adaptive.enabled", "true", "plans are corrected by what the first stages measured"),
        ("spark.sql.execution.arrow.pyspark.enabled", "true", "columns go to Python as Arrow"),
        (
            "spark.sql.execution.arrow.maxBytesPerBatch",
            "8m",
            "every core has a batch or two in the heap at once",
        ),
        (
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
            "state of streams outside the heap, with TTL",
        ),
        (
            "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled",
            "true",
            "a batch writes what it changed, not a snapshot",
        ),
    ]
    cores = local_cores(master, machine)
    here: list[tuple[str, str, str]] = []
    if cores is not None:
        here = [
            ("spark.sql.shuffle.partitions", str(max(2, cores)), "one per core; 200 are for a cluster"),
            ("spark.driver.memory", _driver_memory(machine), "a quarter of the memory, 1 to 8 GB"),
            ("spark.driver.host", "127.0.0.1", "nobody else dials in, and no name is looked up"),
            ("spark.driver.bindAddress", "127.0.0.1", "not reachable from outside"),
            (
                "spark.executor.killOnFatalError.depth",
                "0",
                "a task that needs more memory or stack than there is fails alone, and does not end Spark",
            ),
            ("spark.metrics.staticSources.enabled", "false", "metrics of the JVM, which nothing here reads"),
            ("spark.metrics.executorMetricsSource.enabled", "false", "the same, of the executor"),
            (
                "spark.python.daemon.module",
                "penstock.spark.daemon",
                "Python tasks begin 50 to 100 ms earlier, and shards have what they need",
            ),
            ("spark.python.unix.domain.socket.enabled", "true", "50 ms less per Python task than TCP"),
        ]
    return tuple(SparkSetting(key, value, "default", reason) for key, value, reason in (*anywhere, *here))


def effective(
    settings: Settings, *, conf: Mapping[str, str] | None = None, machine: Machine | None = None
) -> dict[str, SparkSetting]:
    """Return every setting that Spark will get, by key: defaults, then connectors' and catalogs' (`conf`), then the user's."""
    master = settings.master or settings.conf.get("spark.master") or DEFAULT_MASTER
    if settings.conf_origin.get("spark.master") == "conf=":
        master = settings.conf["spark.master"]
    result = {item.key: item for item in defaults(master, machine or this_machine())}
    for folder in settings.conf_folders:
        path = folder / "spark-defaults.conf"
        for key, value in properties(path).items():
            result[key] = SparkSetting(key, value, str(path))
    for key, value in (conf or {}).items():
        result[key] = SparkSetting(key, value, "connectors")
    for key, value in settings.conf.items():
        result[key] = SparkSetting(key, value, settings.conf_origin.get(key, "settings"))
    origin = "settings" if settings.master else "default"
    result["spark.master"] = SparkSetting(
        "spark.master", master, origin, "all cores; a lost worker is retried"
    )
    extensions = _joined((conf or {}).get("spark.sql.extensions"), settings.conf.get("spark.sql.extensions"))
    if extensions:
        setting = result["spark.sql.extensions"]
        result["spark.sql.extensions"] = SparkSetting(setting.key, extensions, setting.origin)
    return dict(sorted(result.items()))


def properties(path: Path) -> dict[str, str]:
    """Read a spark-defaults.conf: a key, then blanks, "=" or ":", then its value; # begins a comment.

    A file that is not there has no settings.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    matches = (re.match(r"\s*(spark\.[^\s=:]+)\s*[=:]?\s*(.*?)\s*$", line) for line in lines)
    return {match[1]: match[2] for match in matches if match}


def _joined(*lists: str | None) -> str:
    words = (word.strip() for text in lists if text for word in text.split(","))
    return ",".join(dict.fromkeys(word for word in words if word))


def _driver_memory(machine: Machine) -> str:
    quarter = min(max(machine.memory // 4, GIBIBYTE), 8 * GIBIBYTE)
    return f"{quarter >> 20}m"


def _group_limits() -> list[int]:
    limits = []
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path(path).read_text()))
        except (OSError, ValueError):
            continue
    return limits
