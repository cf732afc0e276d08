"""Ordinary JSON, by Python's own parser: a tuple of pairs for an object, a list, a string, a number, a truth value, None.

What Python's parser accepts, Jackson accepts and reads the same way, apart from what is looked for before: constants
beyond the standard, halves of surrogate pairs, and the limits that Jackson has. All else is left to the reader that
follows Jackson's rules.
"""

from __future__ import annotations

import json
import re
from typing import Any

from penstock.functions.json.reader import MAX_DEPTH, MAX_NAME, MAX_NUMBER
from penstock.functions.json.writer import FloatText


class NotOrdinary(Exception):
    """A text that Python's parser cannot be asked for."""


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


_DECODER = json.JSONDecoder(object_pairs_hook=tuple, parse_float=FloatText, parse_constant=_refuse)
_BEGIN = re.compile(r"[ \t\n\r]*(?=[{\[])")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_LONG_NUMBER = re.compile(rf"[-+.0-9eE]{{{MAX_NUMBER},}}")


def parse(text: str) -> Any:
    """The object or array that a text begins with; raises NotOrdinary for what Jackson's rules must decide."""
    begin = _BEGIN.match(text)
    if begin is None or ("\\" in text and _SURROGATE.search(text) is not None):
        raise NotOrdinary
    if len(text) >= MAX_NUMBER and (
        len(text) > MAX_NAME
        or text.count("{") + text.count("[") > MAX_DEPTH
        or _LONG_NUMBER.search(text) is not None
    ):
        raise NotOrdinary
    try:
        return _DECODER.raw_decode(text, begin.end())[0]
    except (ValueError, RecursionError):
        raise NotOrdinary from None
