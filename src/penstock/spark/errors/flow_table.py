"""Errors of ours that pass through Spark: why a table of a flow could not be read, or a task failed."""

from __future__ import annotations

import json
from typing import Any

from penstock import errors
from penstock.errors import PenstockError

MARK = "\npenstock-error:"


def encoded(error: PenstockError) -> str:
    """The error as the text of an exception in the JVM: for people, and behind the mark for `decoded`."""
    parts: dict[str, Any] = {
        "kind": type(error).__name__,
        "message": error.message,
        "code": error.code,
        "hint": error.hint,
        "where": error.where,
    }
    if isinstance(error, errors.ConnectorError):
        parts["retryable"] = error.retryable
    return f"{error}{MARK}{json.dumps(parts)}"


def decoded(text: str) -> PenstockError | None:
    """The error that `encoded` wrote into a text; None when the text is of somebody else.

    >>> decoded(encoded(errors.StateError("too late", code="FLOW_CLOSED"))).code
    'FLOW_CLOSED'
    """
    _, mark, parts = text.partition(MARK)
    if not mark:
        return None
    values, _ = json.JSONDecoder().raw_decode(parts)
    kind: type[PenstockError] = getattr(errors, values.pop("kind"), errors.InternalError)
    return kind(values.pop("message"), **values)
