"""Make a lock file of jars anew: fetch what it names, measure it, write it.

    tools/lock_connectors.py                                      measure every jar of the connectors' lock again
    tools/lock_connectors.py --set avro org.apache.spark:spark-avro_2.13:4.1.1      give a connector other jars
    tools/lock_connectors.py --lock tests/servers/servers.lock.toml --set kafka --transitive org.apache.kafka:kafka_2.13:4.1.1

The order of the jars is kept; the first one is the connector itself. `--transitive` adds everything that the given jars
need at run time, and `--beside-pyspark` leaves out of that what PySpark has in any version.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from penstock import config
from penstock.spark.boot import ivy, jars
from penstock.spark.boot.classpath import spark_home
from penstock.spark.boot.java import find_java
from penstock.spark.progress import show

HEADER = """\
# The jars of every connector: exact Maven coordinates, size in bytes and SHA-256. The first one is the connector itself.
# Written by tools/lock_connectors.py; the "about" lines are written by hand and kept.
"""


def main() -> int:
    """Read the arguments, fetch, measure and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lock", type=Path, default=jars.LOCK_FILE, help="the lock file")
    parser.add_argument("--set", metavar="NAME", help="the entry that gets the given coordinates")
    parser.add_argument("--about", help="what the entry is for")
    parser.add_argument("--transitive", action="store_true", help="add what the coordinates need at run time")
    parser.add_argument("--beside-pyspark", action="store_true", help="leave out what PySpark has")
    parser.add_argument("coordinates", nargs="*", help="group:name:version[:classifier]")
    given = parser.parse_args()
    entries = dict(jars.Lock(given.lock)) if given.lock.is_file() else {}
    settings = config.load()
    if given.set:
        named = [unmeasured(text) for text in given.coordinates]
        if given.transitive:
            known = names_in_pyspark() if given.beside_pyspark else set()
            named = [*named, *dependencies(named, settings, known=known)]
        before = entries.get(given.set)
        about = given.about or (before.about if before else given.set)
        entries[given.set] = jars.Connector(given.set, about, tuple(named))
    elif given.coordinates:
        parser.error("coordinates need --set NAME")
    measured = measure((jar for entry in entries.values() for jar in entry.jars), settings)
    entries = {
        name: replace(entry, jars=tuple(measured[jar.coordinate] for jar in entry.jars))
        for name, entry in entries.items()
    }
    given.lock.write_text(text_of(entries), encoding="utf-8")
    return 0


def unmeasured(coordinate: str) -> jars.Jar:
    """Return a jar of which only the coordinates are known."""
    group, name, version, *classifier = coordinate.split(":")
    return jars.Jar(group, name, version, classifier[0] if classifier else None, size=0, sha256="0" * 64)


def measure(wanted: Iterable[jars.Jar], settings: config.Settings) -> dict[str, jars.Jar]:
    """Fetch jars and return them with the size and checksum that they have, by coordinate."""
    unique = list(dict.fromkeys(wanted))
    with tempfile.TemporaryDirectory() as work:
        fetched = ivy.fetch(unique, Path(work), settings, progress=show, what=f"{len(unique)} jars")
        return {
            jar.coordinate: replace(
                jar,
                size=(fetched / jar.file_name).stat().st_size,
                sha256=jars.sha256_of(fetched / jar.file_name),
            )
            for jar in unique
        }


def names_in_pyspark() -> set[str]:
    """Return the names of PySpark's jars without their versions."""
    return {re.sub(r"-\d.*", "", path.name) for path in (spark_home() / "jars").glob("*.jar")}


def dependencies(
    roots: Sequence[jars.Jar], settings: config.Settings, *, known: Collection[str]
) -> list[jars.Jar]:
    """Return what some jars need at run time, as their POMs say, without the jars of known names."""
    found: dict[str, jars.Jar] = {}
    for root in roots:
        with tempfile.TemporaryDirectory() as work:
            command = [
                *(str(find_java(settings).executable), "-jar", str(ivy.ivy_jar()), "-cache", f"{work}/cache"),
                *("-dependency", root.group, root.name, root.version, "-confs", "default"),
                *(
                    "-retrieve",
                    f"{work}/[organisation]@[artifact]@[revision].[ext]",
                    "-types",
                    "jar",
                    "bundle",
                ),
            ]
            subprocess.run(command, check=True, stdout=sys.stderr)
            for path in sorted(Path(work).glob("*@*@*.jar")):
                jar = unmeasured(path.stem.replace("@", ":"))
                if jar.name not in known and jar not in roots:
                    found[f"{jar.group}:{jar.name}"] = jar
    return list(found.values())


def text_of(entries: dict[str, jars.Connector]) -> str:
    """Return the lock file's text."""
    lines = [HEADER]
    for entry in entries.values():
        lines += [f"[{entry.name}]", f"about = {json.dumps(entry.about)}", "jars = ["]
        lines += [
            f'  {{ coordinate = "{jar.coordinate}", size = {jar.size}, sha256 = "{jar.sha256}" }},'
            for jar in entry.jars
        ]
        lines += ["]", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
