"""Encodings: base64, hexadecimal, other number systems, UTF-8, and text in URLs."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from urllib.parse import quote_plus

from penstock.functions.scalars.base import (
    OVERFLOW,
    AnsiError,
    Build,
    Check,
    Compiled,
    Scalar,
    both,
    constant,
    literal_args,
    only,
    row_wise,
)
from penstock.plan.expression import Call

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ALL = 2**64 - 1
_SYMBOLS = {
    char: place
    for place, char in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
}
_ESCAPES = re.compile("(?:%..)+|%", re.DOTALL)
_HEX = re.compile("[+]?[0-9a-fA-F]+")
# The codes that batch queries give to the same mistakes.
BAD_BASE64 = "SQL_SPARK"
BAD_UTF8 = "DATA_MALFORMED_CHARACTER_CODING"
BAD_URL = "DATA_CANNOT_DECODE_URL"


# ------------------------------------------------------------------ base64 and hexadecimal


def _base64(data: bytes, chunks: bool) -> str:
    text = base64.b64encode(data).decode()
    return "\r\n".join(text[at : at + 76] for at in range(0, len(text), 76)) if chunks else text


def _unbase64(text: str) -> bytes:
    """The bytes of base64 as Java's decoder for MIME reads it: what is no symbol is skipped."""
    ending = text.find("=")
    body = text if ending < 0 else text[:ending]
    symbols = "".join(char for char in body if char in _SYMBOLS)
    left = len(symbols) % 4
    if left == 1 or (ending >= 0 and (left == 0 or (left == 2 and text[ending + 1 : ending + 2] != "="))):
        raise AnsiError(f"the end of the base64 text {text!r}", BAD_BASE64)
    if ending >= 0:
        behind = text[ending + (2 if left == 2 else 1) :]
        if any(char in _SYMBOLS for char in behind):
            raise AnsiError(f"symbols behind the end of the base64 text {text!r}", BAD_BASE64)
    return base64.b64decode(symbols + "=" * (-len(symbols) % 4))


def _unhex(text: str) -> bytes | None:
    if re.fullmatch("[0-9A-Fa-f]*", text) is None:
        return None
    return bytes.fromhex("0" + text if len(text) % 2 else text)


# ------------------------------------------------------------------ number systems


def _bin(number: int) -> str:
    return format(number & _ALL, "b")


def _signed(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def _conv(*, ansi: bool) -> Callable[[str, int, int], str | None]:
    def twin(text: str, source: int, target: int) -> str | None:
        text = text.strip(" ")
        if not 2 <= source <= 36 or not 2 <= abs(target) <= 36 or text == "":
            return None
        negative = text[0] == "-"
        value = _read_number(text[negative:], source, ansi)
        number = _signed(value)
        if negative and target > 0:
            number = -1 if number < 0 else -number
        if target < 0 and number < 0:
            number, negative = _signed(-number), True
        return ("-" if negative and target < 0 else "") + _written(number & _ALL, abs(target))

    return twin


def _read_number(text: str, base: int, ansi: bool) -> int:
    value = 0
    for char in text:
        digit = _DIGITS.find(char.upper()) if char.isascii() else -1
        if not 0 <= digit < base:
            break
        value = value * base + digit
        if value > _ALL:
            if ansi:
                raise AnsiError("a number of more than 64 bits", OVERFLOW)
            return _ALL
    return value


def _written(number: int, base: int) -> str:
    text = ""
    while number:
        number, digit = divmod(number, base)
        text = _DIGITS[digit] + text
    return text or "0"


def _build_conv(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    return row_wise(_conv(ansi=bool(call.option("ansiEnabled", False))))(call, args)


# ------------------------------------------------------------------ UTF-8 and URLs


def _first(twin: Callable[..., object]) -> Build:
    """A function whose other arguments are constants that were checked."""

    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        return row_wise(twin)(call, args[:1])

    return build


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise AnsiError(f"the bytes {data!r} are no UTF-8", BAD_UTF8) from None


def _utf8(call: Call) -> str | None:
    name = str(constant(call, 1)).lower()
    return None if name in ("utf-8", "utf8") else f"the character set {name}"


_UTF8: Check = both(literal_args(1), _utf8)


def _url_encode(text: str) -> str:
    # Java leaves the asterisk and escapes the tilde.
    return quote_plus(text, safe="*").replace("~", "%7E")


def _url_decode(*, fails: bool) -> Callable[[str], str | None]:
    def twin(text: str) -> str | None:
        try:
            return _ESCAPES.sub(_unescaped, text.replace("+", " "))
        except ValueError:
            if fails:
                raise AnsiError(f"the escapes of {text!r}", BAD_URL) from None
            return None

    return twin


def _unescaped(match: re.Match[str]) -> str:
    digits = [part.replace(" ", "+") for part in match[0].split("%")[1:]]
    if any(len(part) != 2 or _HEX.fullmatch(part) is None for part in digits):
        raise ValueError(match[0])
    return bytes(int(part, 16) for part in digits).decode("utf-8", "replace")


def _build_url_decode(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    return row_wise(_url_decode(fails=bool(constant(call, 1))))(call, args[:1])


def _strict(call: Call) -> str | None:
    return "to_binary" if call.option("failOnError", False) else None


FUNCTIONS: dict[str, Scalar] = {
    "Base64.encode": Scalar(row_wise(_base64), only("binary", first=1)),
    "UnBase64": Scalar(row_wise(_unbase64), both(only("string"), _strict)),
    "Unhex": Scalar(row_wise(_unhex), both(only("string"), _strict)),
    "Bin": Scalar(row_wise(_bin), only("bigint")),
    "Conv": Scalar(_build_conv, only("string", first=1)),
    "Encode.encode": Scalar(_first(str.encode), both(only("string", first=1), _UTF8)),
    "StringDecode.decode": Scalar(_first(_decoded), both(only("binary", first=1), _UTF8)),
    "UrlCodec.encode": Scalar(row_wise(_url_encode), only("string")),
    "UrlCodec.decode": Scalar(_build_url_decode, both(only("string", first=1), literal_args(1))),
}
