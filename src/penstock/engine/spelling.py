"""Names in any case, as Spark takes them."""

from __future__ import annotations

from collections.abc import Iterable


def registered(name: str, known: Iterable[str]) -> str | None:
    """How a name, of a relation or a column, was spelled when it was registered, None when it was not.

    >>> registered("ORDERS", ["orders", "customers"])
    'orders'
    """
    given = list(known)
    folded = name.casefold()
    return name if name in given else next((one for one in given if one.casefold() == folded), None)
