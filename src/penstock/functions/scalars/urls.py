"""parse_url and try_parse_url: the parts of a URL as java.net.URI reads them, RFC 2396 with what Java allows besides.

Spark is asked for a delta with characters beyond ASCII, with brackets in an authority, and with a URL that is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from penstock.functions.scalars import patterns
from penstock.functions.scalars.base import (
    BeyondKernel,
    ByRow,
    Compiled,
    Scalar,
    both,
    only,
    row_wise,
)
from penstock.plan.expression import Call

_UNRESERVED = r"A-Za-z0-9\-_.!~*'()"
_ESCAPED = "%[0-9A-Fa-f]{2}"


def _of(characters: str) -> re.Pattern[str]:
    """Any number of unreserved characters, escapes, and the given ones."""
    return re.compile(f"(?:[{_UNRESERVED}{characters}]|{_ESCAPED})*")


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+\-.]*")
_PATH = _of(r":@&=+$,;/")
_ANY = _of(r";/?:@&=+$,\[\]")  # of a query, a fragment, and what follows a scheme without a slash
_NAME = _of(r"$,;:@&=+")
_USER = _of(r";:&=+$,")
# An authority: the first at ends the user, and the first colon behind it the host.
_SERVER = re.compile(r"(?:(?P<user>[^@]*)@)?(?P<host>[^:]*)(?::(?P<port>[0-9]*))?")
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9\-]*[A-Za-z0-9])?")
_ADDRESS = re.compile(r"[0-9.]*")
_LAST_BYTE = 255
_LAST_PORT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Url:
    """The parts of a URL as they are written, None for those that it has not."""

    scheme: str | None = None
    authority: str | None = None
    user: str | None = None
    host: str | None = None
    path: str | None = None
    query: str | None = None
    fragment: str | None = None

    @property
    def file(self) -> str | None:
        """The path with the query."""
        return self.path if self.query is None else f"{self.path}?{self.query}"


def parse(text: str) -> Url | None:
    """The parts of a URL, None for one that Java refuses.

    >>> parse("http://me@a.example:80/p%20q?k=1#top")
    Url(scheme='http', authority='me@a.example:80', user='me', host='a.example', path='/p%20q', query='k=1', fragment='top')
    >>> parse("http://a b/") is None
    True
    """
    if not text.isascii():
        raise BeyondKernel(f"{text!r} has characters beyond ASCII")
    rest, mark, fragment = text.partition("#")
    if mark and not _ANY.fullmatch(fragment):
        return None
    parts: dict[str, str | None] = {"fragment": fragment if mark else None}
    end = next((at for at, char in enumerate(rest) if char in ":/?"), len(rest))
    if rest[end : end + 1] == ":":
        scheme, rest = rest[:end], rest[end + 1 :]
        if not _SCHEME.fullmatch(scheme):
            return None
        parts["scheme"] = scheme
        if not rest.startswith("/"):
            return Url(**parts) if rest and _ANY.fullmatch(rest) else None
    if rest.startswith("//"):
        end = next((at for at, char in enumerate(rest) if at > 1 and char in "/?"), len(rest))
        authority, rest = rest[2:end], rest[end:]
        if not authority and not rest and not mark:
            return None
        if authority:
            server = _authority(authority)
            if server is None:
                return None
            parts |= server
    path, mark, query = rest.partition("?")
    if not _PATH.fullmatch(path) or not _ANY.fullmatch(query):
        return None
    return Url(**parts, path=path, query=query if mark else None)


def _authority(text: str) -> dict[str, str | None] | None:
    """The authority, and its user and host where it is one of a server; any name of legal characters is an authority."""
    if "[" in text or "]" in text:
        raise BeyondKernel(f"the authority {text!r} has brackets")
    if not _NAME.fullmatch(text):
        return None
    match = _SERVER.fullmatch(text)
    if match is None or not _is_host(match["host"]) or int(match["port"] or 0) > _LAST_PORT:
        return {"authority": text}
    if match["user"] is not None and not _USER.fullmatch(match["user"]):
        return {"authority": text}
    return {"authority": text, "user": match["user"], "host": match["host"]}


def _is_host(text: str) -> bool:
    """Whether it is a name of labels, of which the last of several begins with a letter, or an IPv4 address."""
    labels = text.removesuffix(".").split(".")
    if "" in labels and len(labels) > 1:
        raise BeyondKernel(f"the host {text!r} has an empty label")
    if not all(map(_LABEL.fullmatch, labels)):
        return False
    if len(labels) == 1 or labels[-1][0].isalpha():
        return True
    if not _ADDRESS.fullmatch(text):
        return False
    if text.endswith(".") or any(len(label) > 3 for label in labels):
        raise BeyondKernel(f"the host {text!r} is nearly an address")
    return len(labels) == 4 and all(int(label) <= _LAST_BYTE for label in labels)


_PARTS: dict[str, Callable[[Url], str | None]] = {
    "HOST": lambda url: url.host,
    "PATH": lambda url: url.path,
    "QUERY": lambda url: url.query,
    "REF": lambda url: url.fragment,
    "PROTOCOL": lambda url: url.scheme,
    "FILE": lambda url: url.file,
    "AUTHORITY": lambda url: url.authority,
    "USERINFO": lambda url: url.user,
}


@lru_cache(maxsize=4096)
def _value_of(key: str) -> re.Pattern[str]:
    """A parameter of a query; Spark reads the key as a regular expression."""
    compiled = patterns.python_regex(f"(&|^){key}=([^&]*)")
    if compiled is None:
        raise BeyondKernel(f"the key {key!r} is not of both dialects of regular expressions")
    return compiled


def _build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    fails = bool(call.option("failOnError", True))

    def twin(text: str, part: str, key: str | None = None) -> Any:
        if key is not None and part != "QUERY":
            return None
        url = parse(text)
        if url is None:
            if fails:
                raise BeyondKernel(f"{text!r} is no URL")
            return None
        value = _PARTS[part](url) if part in _PARTS else None
        if key is None or value is None:
            return value
        match = _value_of(key).search(value)
        return None if match is None else match[2]

    return row_wise(twin)(call, args)


def _check(call: Call) -> str | None:
    return ByRow("a URL that is refused, or has characters beyond ASCII or brackets in its authority")


FUNCTIONS: dict[str, Scalar] = {
    "ParseUrlEvaluator.evaluate": Scalar(_build, both(only("string"), _check)),
}
