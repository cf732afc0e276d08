"""Expressions as one view over rows that come and go, next to Spark's batch query after every tick."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import penstock as ps
from golden.case import Change
from twin.batch import Answer, Pair
from twin.judge import Table


def differences(
    session: ps.Session, query: str, table: Table, chance: Random, *, ticks: int = 4
) -> list[tuple[int, Answer, Answer]]:
    """Drive a query over `t` (its columns are those of the table and a number `id`): where it is not Spark's answer.

    Every row comes in some tick, some come twice, and one of three goes again in a later tick.
    """
    columns = [values for _, values in table.values()]
    rows = [(number, *values) for number, values in enumerate(zip(*columns, strict=True))]
    ddl = ", ".join(["id int", *(f"{name} {kind}" for name, (kind, _) in table.items())])
    pair = Pair(session, query, {"t": ddl})
    found = []
    for number, planned in enumerate(_changes(rows, chance, ticks)):
        # Rows of a tick that both have refused are not there.
        held = set(map(repr, pair.held["t"]))
        changes = tuple(change for change in planned if change[0] > 0 or repr(change[1]) in held)
        expected, answer = pair.step({"t": changes})
        if expected != answer:
            found.append((number, expected, answer))
    return found


def _changes(rows: Sequence[tuple[Any, ...]], chance: Random, ticks: int) -> list[tuple[Change, ...]]:
    plan: list[list[Change]] = [[] for _ in range(ticks)]
    for row in rows:
        comes = chance.randrange(ticks)
        plan[comes].append((chance.choice([1, 1, 1, 2]), row))
        if comes + 1 < ticks and chance.random() < 0.5:
            plan[chance.randrange(comes + 1, ticks)].append((-1, row))
    return [tuple(changes) for changes in plan]
