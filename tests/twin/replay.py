"""Random ticks through every operator that keeps state; as a program it prints a digest of all that they give and keep, and where it is.

python tests/twin/replay.py SEED
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
import time
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.data.delta import Delta
from penstock.data.tick import Tick
from twin.flows import ALL_VIEWS, LOOKUPS, Action, Subject
from twin.rigs import NAMES, RIGS, TYPES, bits, image_bits
from twin.rows import delta_of, small_state

POOLS: dict[str, list[Any]] = {
    "bigint": [None, *range(6)],
    "double": [None, float("nan"), float("inf"), 0.0, -0.0, 1e-300, 0.1, 2.5],
    "string": [None, "", "a", "a longer text, over two words"],
    "decimal": [None, Decimal("1.00"), Decimal("-7.25")],
    "bool": [None, True, False],
}


def random_ticks(
    seed: int, *, ticks: int = 12, rows: int = 9, last: int | None = None
) -> list[tuple[Delta, Delta]]:
    """Changes of two inputs, `rows` inserts each (`last` in the last tick), that never retract a row that is not there."""
    chance = random.Random(seed)
    present: tuple[list[Any], list[Any]] = ([], [])
    changes = []
    for inserts in [rows] * (ticks - 1) + [rows if last is None else last]:
        deltas = []
        for input_rows in present:
            inserted = [tuple(chance.choice(POOLS[name]) for name in NAMES) for _ in range(inserts)]
            retracted = [
                input_rows.pop(chance.randrange(len(input_rows)))
                for _ in range(min(len(input_rows), max(1, inserts // 2)))
            ]
            input_rows.extend(inserted)
            deltas.append(delta_of([(row, 1) for row in inserted] + [(row, -1) for row in retracted], TYPES))
        changes.append((deltas[0], deltas[1]))
    return changes


def digest(name: str, seed: int) -> str:
    """The digest of all that one operator gives and keeps."""
    found = hashlib.sha256()
    rig = RIGS[name]()
    rig.initial()
    for number, deltas in enumerate(random_ticks(seed), 1):
        found.update(repr([bits(delta) for delta in rig.step(deltas, Tick(number, number))]).encode())
        rig.end_tick()
    found.update(repr([image_bits(image) for image in rig.save()]).encode())
    return found.hexdigest()


def flow_digest(seed: int) -> str:
    """The digest of all that a flow of all kinds of views gives and keeps; views, ticks and look-ups come in some order."""
    chance = random.Random(seed)
    changes = [
        [
            (chance.randrange(4), chance.randrange(-2, 4), chance.randrange(2), chance.random() < 0.3)
            for _ in range(8)
        ]
        for _ in range(10)
    ]
    subject = Subject(changes)
    actions: list[Action] = [("view", name) for name in ALL_VIEWS]
    actions += [("lookup", what) for what in LOOKUPS]
    chance.shuffle(actions)
    found = hashlib.sha256()
    for number in range(len(changes)):
        for action in actions[number::10]:
            subject.do(action)
        found.update(repr([bits(delta) for delta in subject.emitted()]).encode())
    for name in ALL_VIEWS:
        subject.add(name)
    images = sorted((str(key), image) for key, image in subject.kernel.save().items())
    found.update(repr([(key, image_bits(image)) for key, image in images]).encode())
    return found.hexdigest()


if __name__ == "__main__":
    seed = int(sys.argv[1])
    with small_state():
        digests = {name: digest(name, seed) for name in RIGS}
        digests |= {f"flow {number}": flow_digest(seed + number) for number in range(5)}
        place = {"day": int(time.time() // 86_400), "zone": time.tzname[0], "threads": pa.cpu_count()}
        print(json.dumps([digests, place]))
