"""Values that a saved plan must not show: in storage a placeholder stands for each, which only who knows the value can take back.

A placeholder is a slow hash of its value, so nobody reads the value from it, and a value that has changed is not
taken for the one of before.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from penstock.errors import StateError

SHORTEST = 4
"""Values with fewer characters are no secrets: everybody finds them by trying."""
_ROUNDS = 100_000
_PLACEHOLDER = re.compile(r"\$\{sealed (text|int) [0-9a-f]{32}\}")


class Seal:
    """Puts placeholders in the place of values, in what JSON can say, and takes them back."""

    def __init__(self, values: Iterable[str] = (), *, may_miss: bool = False) -> None:
        """With `may_miss` a placeholder of an unknown value stays, and `is_missing` says so; otherwise it is a StateError."""
        self._values = sorted({value for value in values if len(value) >= SHORTEST}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self._values))) if self._values else None
        self._may_miss = may_miss
        self._digests: dict[str, str] = {}
        self._values_by_placeholder: dict[str, str | int] | None = None
        self.is_missing = False

    def __bool__(self) -> bool:
        """Whether there are values to be sealed."""
        return bool(self._values)

    def sealed(self, value: Any) -> Any:
        """Return a JSON value with placeholders.

        >>> seal = Seal(["hunter2"])
        >>> stored = seal.sealed({"sql": "SELECT 'hunter2'", "limit": 100})
        >>> "hunter2" in str(stored), seal.opened(stored)
        (False, {'sql': "SELECT 'hunter2'", 'limit': 100})
        """
        return value if self._pattern is None else _walked(value, self._seal)

    def opened(self, value: Any) -> Any:
        """Return a JSON value as it was before it was sealed."""
        return _walked(value, self._open)

    def sealed_text(self, text: str) -> str:
        """Return the text of a JSON value with placeholders."""
        return json.dumps(self.sealed(json.loads(text)), separators=(",", ":")) if self else text

    def opened_text(self, text: str) -> str:
        """Return the text of a JSON value as it was before it was sealed."""
        return json.dumps(self.opened(json.loads(text))) if "${sealed " in text else text

    def require_all(self) -> None:
        """StateError when a placeholder stands for none of the values."""
        if self.is_missing:
            raise missing()

    def _seal(self, leaf: Any) -> Any:
        assert self._pattern is not None
        if isinstance(leaf, str):
            return self._pattern.sub(lambda match: self._placeholder("text", match[0]), leaf)
        if type(leaf) is int and str(leaf) in self._values:
            return self._placeholder("int", str(leaf))
        return leaf

    def _open(self, leaf: Any) -> Any:
        if not isinstance(leaf, str) or "${sealed " not in leaf:
            return leaf
        placeholder = _PLACEHOLDER.fullmatch(leaf)
        if placeholder is not None and placeholder[1] == "int":
            value = self._value(leaf)
            return 0 if value is None else value
        return _PLACEHOLDER.sub(lambda match: str(self._value(match[0]) or match[0]), leaf)

    def _value(self, placeholder: str) -> str | int | None:
        if self._values_by_placeholder is None:
            self._values_by_placeholder = {self._placeholder("text", value): value for value in self._values}
            self._values_by_placeholder |= {
                self._placeholder("int", value): int(value)
                for value in self._values
                if re.fullmatch(r"-?\d+", value)
            }
        value = self._values_by_placeholder.get(placeholder)
        if value is None:
            if not self._may_miss:
                raise missing()
            self.is_missing = True
        return value

    def _placeholder(self, kind: str, value: str) -> str:
        if value not in self._digests:
            salt = b"a value in a plan of penstock"
            digest = hashlib.pbkdf2_hmac("sha256", value.encode(errors="surrogatepass"), salt, _ROUNDS)
            self._digests[value] = digest.hex()[:32]
        return f"${{sealed {kind} {self._digests[value]}}}"


def missing() -> StateError:
    """The error for a plan with a value that nobody knows any more."""
    return StateError(
        "the state of the views was made with the value of a variable that is not known here, "
        "and its last epochs can only be made with it",
        code="VIEW_VARIABLE",
        hint="start it once with the value of before and stop it, so that its state stands for "
        "itself; or begin again with `penstock state reset`. "
        "What is not secret need not be a variable",
    )


def _walked(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {key: _walked(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_walked(item, change) for item in value]
    return change(value)
