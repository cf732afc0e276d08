"""What a node of a pipeline remembers, in memory."""

from __future__ import annotations

import json
from typing import Any


class Remembered:
    """Values as the state backend has them: those that JSON can say."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.parts: dict[str, Remembered] = {}

    def get(self, key: str, default: Any = None) -> Any:
        return json.loads(self.values[key]) if key in self.values else default

    def put(self, key: str, value: Any) -> None:
        self.values[key] = json.dumps(value)

    def remove(self, key: str) -> None:
        self.values.pop(key, None)

    def clear(self) -> None:
        self.values.clear()

    def within(self, part: str) -> Remembered:
        return self.parts.setdefault(part, Remembered())
