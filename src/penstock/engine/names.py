"""Names of relations, columns and choices: found whatever their case, as Spark does, and with a suggestion when they are not.

A name with points is `schema.table`: SQL writes its parts with points between them, or the whole in backquotes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from penstock.data.collation import is_collated, normaliser
from penstock.errors import ConfigError, suggest
from penstock.plan.node import Field


def registered(name: str, names: Iterable[str]) -> str | None:
    """How a name, of a relation or a column, was spelled when it was registered, None when it was not.

    >>> registered("ORDERS", ["orders", "customers"])
    'orders'
    """
    spellings = list(names)
    folded = name.casefold()
    if name in spellings:
        return name
    return next((spelling for spelling in spellings if spelling.casefold() == folded), None)


def position(column: Any, columns: Sequence[str], *, of: str) -> int:
    """Where a column stands; ConfigError when `of` has none of this name."""
    spelled = registered(str(column), columns)
    if spelled is None:
        raise ConfigError(
            f"{of} has no column '{column}'",
            code="FLOW_UNKNOWN_COLUMN",
            hint=suggest(str(column), columns, what="column"),
        )
    return columns.index(spelled)


def require_comparable(fields: Iterable[Field], *, of: str, collated: bool = False) -> None:
    """Refuse key columns whose values the kernel would tell apart by their bytes, and Spark would not, or cannot compare.

    `collated`: text with a collation that the kernel knows is compared by that.
    """
    for field in fields:
        if is_collated(field.type) and not (collated and normaliser(field.type)):
            raise ConfigError(
                f"column '{field.name}' is compared by the collation of {field.type}, which {of} cannot do",
                code="FLOW_KEY_TYPE",
                hint=f"use another column, such as collation_key({field.name}) or lower({field.name}) of a view",
            )
        if "variant" in field.type:
            raise ConfigError(
                f"column '{field.name}' is a VARIANT, which cannot be compared in {of}",
                code="FLOW_KEY_TYPE",
                hint=f"use a part of it, such as variant_get({field.name}, '$.id', 'BIGINT') of a view",
            )


def one_of(option: str, value: Any, choices: Sequence[str]) -> None:
    """Refuse a value that is none of the choices."""
    if value not in choices:
        raise ConfigError(
            f"{option}={value!r} is not known",
            code="FLOW_OPTION",
            hint=suggest(str(value), choices, what="choice"),
        )


def require_name(name: Any) -> None:
    """Refuse what cannot be the name of a source or view."""
    if not isinstance(name, str) or not all(part.strip() for part in name.split(".")):
        raise ConfigError(
            f"{name!r} is not a name",
            code="FLOW_NAME",
            hint="use a name such as orders, or schema.orders",
        )
