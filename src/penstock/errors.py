"""Every error that a user of penstock can see, and the search for the nearest name.

The children say who must act: the one who configured (`ConfigError`), wrote the query (`SqlError`), owns the data
(`DataError`), owns the state (`StateError`) or runs the other system (`ConnectorError`). `InternalError` is ours, and so is the
translation of an exception that nobody expected (`unexpected`).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable


class PenstockError(Exception):
    """What failed, where, and what to do about it; `condition` is Spark's own error class, where Spark has one.

    >>> raise SqlError("no table 'ordrs'", code="SQL_UNKNOWN_TABLE", hint="did you mean 'orders'?")
    Traceback (most recent call last):
        ...
    penstock.errors.SqlError: no table 'ordrs'
      hint: did you mean 'orders'?
    """

    default_code = "INTERNAL"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        hint: str | None = None,
        where: str | None = None,
        condition: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.hint = hint
        self.where = where
        self.condition = condition

    def hide(self, hide: Callable[[str], str]) -> None:
        """Take secrets out of all that the error says."""
        self.message = hide(self.message)
        self.args = (self.message,)
        self.hint = None if self.hint is None else hide(self.hint)
        self.where = None if self.where is None else hide(self.where)

    def __str__(self) -> str:
        lines = [self.message]
        if self.condition and self.condition not in self.message and not self.condition.startswith("_"):
            lines[0] += f" [{self.condition}]"
        if self.where:
            lines.append(f"  at: {self.where}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments do not survive the default pickling of exceptions, and errors travel between processes.
        return (_rebuild, (type(self), self.message, self.code, self.hint, self.where, self.__dict__))


def _rebuild(
    kind: type[PenstockError],
    message: str,
    code: str,
    hint: str | None,
    where: str | None,
    attributes: dict[str, object],
) -> PenstockError:
    error = kind(message, code=code, hint=hint, where=where)
    error.__dict__.update(attributes)
    return error


class ConfigError(PenstockError):
    """A setting, option or command line that cannot work."""

    default_code = "CONFIG"


class SqlError(PenstockError):
    """A statement that Spark or penstock refuses."""

    default_code = "SQL"


class DataError(PenstockError):
    """Rows that do not fit: schema, overflow, a retraction of something that is not there."""

    default_code = "DATA"


class StateError(PenstockError):
    """A checkpoint, lease, ticket or archive that is missing, expired, foreign or owned by someone else."""

    default_code = "STATE"


class ConnectorError(PenstockError):
    """Another system failed or is missing; `retryable` says whether trying again can help."""

    default_code = "CONNECTOR"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        hint: str | None = None,
        where: str | None = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(message, code=code, hint=hint, where=where)
        self.retryable = retryable


class QueryTimeout(PenstockError, TimeoutError):
    """A query ran longer than it was allowed to; its Spark jobs are gone."""

    default_code = "QUERY_TIMEOUT"


class InternalError(PenstockError):
    """A fault of penstock itself."""

    default_code = "INTERNAL"


class OutOfMemory(PenstockError, MemoryError):
    """The process has no memory left for what it was asked to do."""

    default_code = "OUT_OF_MEMORY"


def unexpected(error: Exception, doing: str) -> PenstockError:
    """The error that a user gets for an exception that nobody expected while penstock was `doing` something.

    >>> print(unexpected(KeyError("city"), "a tick"))
    a tick failed: KeyError: 'city'
      hint: this is a fault of penstock, not of your data; the exception that caused it says where
    """
    message = f"{doing} failed: {type(error).__name__}" + (f": {error}" if str(error) else "")
    if isinstance(error, MemoryError):
        hint = "feed smaller changes, give the flow a budget (`memory=`) or the process more memory"
        return OutOfMemory(message, hint=hint)
    # Arrow's errors are known by their names: nobody who only reads an error imports Arrow.
    if type(error).__name__ == "ArrowCapacityError" or "offset overflow" in str(error):
        hint = "a column of one change may hold 2 GiB of text; feed smaller changes"
        return DataError(message, code="DATA_TOO_LARGE", hint=hint)
    hint = "this is a fault of penstock, not of your data; the exception that caused it says where"
    return InternalError(message, hint=hint)


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """Return the choice that a mistyped name most likely means, if one is near.

    >>> nearest("Ordrs", ["orders", "customers"])
    'orders'
    """
    folded = {choice.casefold(): choice for choice in choices}
    near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    return folded[near[0]] if near else None


def suggest(name: str, choices: Iterable[str], *, what: str = "name") -> str:
    """Return a hint for an unknown name: the nearest choice if one is near, then all of them.

    >>> suggest("ordrs", ["orders", "customers"], what="table")
    "did you mean 'orders'? Known tables: customers, orders"
    """
    names = sorted(set(choices))
    if not names:
        return f"there are no {what}s yet"
    shown = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    listing = f"Known {what}s: {shown}"
    near = nearest(name, names)
    return f"did you mean '{near}'? {listing}" if near is not None else listing
