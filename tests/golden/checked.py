"""Which areas were compared with plain Spark as they are now: the answer depends on nothing but what the digest is of."""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from pathlib import Path

from .case import CASES, RECORDED, area_names

CHECKED = RECORDED.parent / "checked.json"
# What asks Spark, and what compares its answers.
_CODE = ("canonical.py", "case.py", "multiset.py", "record.py", "recording.py", "spark_answer.py")


def digest(area: str) -> str:
    """A digest of the cases of an area, of what is recorded about them, of what compares them and of Spark's version."""
    entries = json.loads((RECORDED / f"{area}.json").read_text(encoding="utf-8"))
    answers = {name: [entry["schema"], entry["ticks"]] for name, entry in entries.items()}
    parts = [version("pyspark"), json.dumps(answers, sort_keys=True)]
    parts += [path.read_text(encoding="utf-8") for path in sorted(CASES.glob(f"{area}.*"))]
    parts += [(Path(__file__).parent / name).read_text(encoding="utf-8") for name in _CODE]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def unchecked() -> list[str]:
    """The areas that have changed since they were compared."""
    before = json.loads(CHECKED.read_text(encoding="utf-8")) if CHECKED.exists() else {}
    return [area for area in area_names() if before.get(area) != digest(area)]


def note_checked() -> None:
    """Note that all areas are as Spark answers."""
    digests = {area: digest(area) for area in sorted(area_names())}
    CHECKED.write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")
