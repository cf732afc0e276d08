"""Random JSON: ordinary, slightly broken, and of the kinds that only a lenient parser takes."""

from __future__ import annotations

import json
import random
from typing import Any

NAMES = ["a", "b", "c", "d", "A", "x y", "", "é", "_corrupt_record"]
WORDS = [
    "",
    "x",
    "12",
    "1.5",
    "NaN",
    "-Infinity",
    "2024-02-29",
    "2024-13-01",
    "2024-01-02T03:04:05",
    "17",
    "é😀",
    'q"\\/',
    "line\nbreak\t",
    "\u0001",
    "\u2028",
    "true",
    "1,234.50",
]
NUMBERS = [
    "0",
    "-0",
    "1",
    "127",
    "128",
    "255",
    "256",
    "-129",
    "32768",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "1.0",
    "1.50",
    "-0.0",
    "1e2",
    "1E-7",
    "1.1e400",
    "0.1",
    "123456789.987654321",
    "16777217",
    "5e-324",
    "12345678901234567890.5",
    "1.00000017881393421514957253748434595763683319091796875001",
    "0.005",
    "99999.995",
]
LENIENT = [
    "NaN",
    "Infinity",
    "-Infinity",
    "+INF",
    "-INF",
    "+1",
    "01",
    "-01",
    ".5",
    "1.",
    "1.e2",
    "'x'",
    "'a\\'b'",
    "nul",
    "True",
    "tru",
]
BROKEN = [
    '"',
    "'",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\\",
    "/",
    "//c\n",
    "/*c*/",
    "#",
    "-",
    "+",
    "e",
    ".",
    "0",
    " ",
    "\n",
    "\t",
    "\r",
    "\x01",
    "\x1e",
    "\ufeff",
    "\\u12",
    "\\ud83d",
    "\\ude00",
    "\\q",
    "x",
    "€",
    "😀",
    "null",
    ";",
]


def text(rng: random.Random) -> str:
    """One text."""
    value = document(rng, rng.randrange(4))
    kind = rng.randrange(10)
    if kind < 4:
        return value
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(len(value) + 1)
        cut = rng.choice((0, 0, 1, 1, 2))
        value = value[:at] + rng.choice(["", *BROKEN, *LENIENT]) + value[at + cut :]
    return value


def document(rng: random.Random, depth: int) -> str:
    """A value with its blanks, mostly an object."""
    begin, end = rng.choice([("", "")] * 6 + [(" ", "\n"), ("", " {}"), ("\t", "x"), ("\r\n", "")])
    body = _object(rng, depth) if rng.random() < 0.8 else _value(rng, depth)
    return begin + body + end


def _value(rng: random.Random, depth: int) -> str:
    kind = rng.randrange(10)
    if depth > 0 and kind < 3:
        return _object(rng, depth - 1)
    if depth > 0 and kind < 5:
        return (
            "["
            + _blank(rng).join(_separated(rng, [_value(rng, depth - 1) for _ in range(rng.randrange(4))]))
            + "]"
        )
    if kind < 6:
        return rng.choice(["true", "false", "null"])
    if kind < 8:
        return rng.choice(NUMBERS)
    if rng.random() < 0.05:
        return rng.choice(LENIENT)
    return _string(rng, rng.choice(WORDS))


def _object(rng: random.Random, depth: int) -> str:
    fields = [
        _string(rng, rng.choice(NAMES)) + _blank(rng) + ":" + _blank(rng) + _value(rng, depth)
        for _ in range(rng.randrange(6))
    ]
    return "{" + _blank(rng).join(_separated(rng, fields)) + _blank(rng) + "}"


def _separated(rng: random.Random, items: list[str]) -> list[str]:
    return [item + ("," if index < len(items) - 1 else "") for index, item in enumerate(items)]


def _blank(rng: random.Random) -> str:
    return rng.choice(["", "", "", " ", "\n "])


def _string(rng: random.Random, value: Any) -> str:
    quoted = json.dumps(value, ensure_ascii=rng.random() < 0.3)
    if rng.random() < 0.03:
        return "'" + quoted[1:-1].replace("'", "\\'").replace('\\"', '"') + "'"
    return quoted
