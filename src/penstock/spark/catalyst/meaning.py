"""What Spark computes in a part of a plan, as a digest: two parts at the same place of two plans need not be the same.

The digest is the same whenever the same query is planned, so ids and places, which are counted up, do not count: a
column is its position in the input, other things with an id are numbered as they appear.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.spark.catalyst.expressions import Json

_LEFT_OUT = frozenset({"at", "sql", "id", "exprId", "resultId", "random"})
# The code of a function in Python: its bytes may differ in another process, and in SQL its name says which it is.
_CODE = "func"


def of_expressions(
    items: Sequence[Json], bindings: Sequence[Sequence[tuple[int, int]]], *, code: bool
) -> str:
    """The digest of expressions whose parts at some places are columns of the input; `code`: the code of functions in
    Python distinguishes them."""
    columns = {place: column for binding in bindings for place, column in binding}
    return _digest([_Normalizer(columns, {}, code).value(item) for item in items])


def of_operators(operators: Sequence[Json], parts: Iterable[Json], *, code: bool) -> str:
    """The digest of operators, each over the next, and of parts of the first one, over the columns of the last one's children."""
    ids = {
        column[0]: f"{index}.{position}"
        for index, child in enumerate(operators[-1]["k"])
        for position, column in enumerate(child["o"])
    }
    normalizer = _Normalizer({}, ids, code)
    return _digest(
        [
            *([operator["c"], normalizer.value(operator["a"])] for operator in operators),
            *(normalizer.value(part) for part in parts),
        ]
    )


class _Normalizer:
    """Descriptions of expressions and plans without what is counted up."""

    def __init__(self, columns: Mapping[int, int], ids: Mapping[int, str], code: bool) -> None:
        self._columns = columns
        self._ids: dict[int, str] = dict(ids)
        self._code = code

    def value(self, item: Any) -> Any:
        if isinstance(item, list):
            return [self.value(part) for part in item]
        if not isinstance(item, dict):
            return item
        if item.get("at") in self._columns:
            return ["column", self._columns[item["at"]]]
        entries = {key: part for key, part in item.items() if key not in _LEFT_OUT}
        if "c" in item:
            # An alias gives a name, a column or a variable has one: what counts is which of them are the same.
            entries.pop("name", None)
            if "id" in item:
                entries["number"] = self._number(item["id"])
            if item["c"] == "NamedLambdaVariable":
                entries.pop("a", None)
        if "o" in entries:
            entries["o"] = [[self._number(column[0]), *column[2:]] for column in entries["o"]]
        if not self._code:
            entries.pop(_CODE, None)
        return {key: self.value(part) for key, part in entries.items()}

    def _number(self, identifier: int) -> str:
        return self._ids.setdefault(identifier, str(len(self._ids)))


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
