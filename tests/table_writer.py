"""Random transactions on a table of PostgreSQL, and the judge of what a source made of them."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Self

import psycopg

KEYS = 400
CREATE = "CREATE TABLE t (id integer PRIMARY KEY, a text, n numeric(10,2), big text)"


class TableWriter:
    """Writes to the table `t` in the background, until the block ends; two of them meet on the same rows.

    with TableWriter(url, seed=1): ...
    """

    def __init__(self, url: str, *, seed: int, pause: float = 0.01) -> None:
        self._url, self._pause = url, pause
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(random.Random(seed + n),)) for n in range(2)
        ]
        self.transactions = 0

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, chance: random.Random) -> None:
        connection: psycopg.Connection | None = None
        while not self._over.wait(self._pause):
            try:
                connection = connection or psycopg.connect(self._url)
                self._transaction(connection, chance)
                self.transactions += 1
            except (psycopg.OperationalError, psycopg.InterfaceError):  # the server is killed, or two meet
                connection = None if connection is None else _rolled_back(connection)
            except psycopg.errors.UniqueViolation:
                assert connection is not None
                connection.rollback()
        if connection is not None:
            connection.close()

    def _transaction(self, connection: psycopg.Connection, chance: random.Random) -> None:
        for _ in range(chance.randint(1, 6)):
            _change(connection, chance)
        if chance.random() < 0.3:
            with connection.transaction():  # a savepoint
                _change(connection, chance)
        if chance.random() < 0.15:
            connection.rollback()
        else:
            connection.commit()


def _rolled_back(connection: psycopg.Connection) -> psycopg.Connection | None:
    try:
        connection.rollback()
    except psycopg.Error:
        connection.close()
        return None
    return connection


def _change(connection: psycopg.Connection, chance: random.Random) -> None:
    key, other = chance.randrange(KEYS), chance.randrange(KEYS)
    value = f"{chance.random()}"
    match chance.randrange(5):
        case 0 | 1:
            big = (
                "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=40)) * 400
                if chance.random() < 0.1
                else value
            )
            connection.execute(
                "INSERT INTO t VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING", (key, value, key, big)
            )
        case 2:
            connection.execute("UPDATE t SET a = %s WHERE id BETWEEN %s AND %s", (value, key, key + 2))
        case 3:
            connection.execute("DELETE FROM t WHERE id = %s", (key,))
        case 4:
            connection.execute(
                "UPDATE t SET id = %s WHERE id = %s AND NOT EXISTS (SELECT FROM t WHERE id = %s)",
                (other, key, other),
            )


def apply(
    table: dict[int, tuple[Any, ...]], rows: Iterable[Mapping[str, Any]], *, strict: bool = True
) -> None:
    """Do to a table what rows with operations say; with `strict` nothing may come twice or be missing."""
    for row in rows:
        key, values = row["id"], (row["a"], row["n"], row["big"])
        match row["_op"]:
            case "i":
                assert not strict or key not in table, f"inserted twice: {key}"
                table[key] = values
            case "u":
                assert not strict or key in table, f"updated, and was never inserted: {key}"
                table[key] = values
            case "d":
                assert not strict or key in table, f"deleted, and was never inserted: {key}"
                table.pop(key, None)


def content(url: str) -> dict[int, tuple[Any, ...]]:
    """What is in the table."""
    with psycopg.connect(url) as connection:
        return {key: tuple(values) for key, *values in connection.execute("SELECT id, a, n, big FROM t")}
