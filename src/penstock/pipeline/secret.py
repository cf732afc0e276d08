"""What is secret in a pipeline, and texts without it.

A secret is found as it is, in other case, and as texts have it that quote it: as Python, JSON, SQL and URLs write it,
each line of one that has several, and its beginning where a text was cut.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus, unquote, urlsplit

from penstock.backend.address import is_secret_name, passwords_in
from penstock.options import Options

HIDDEN = "***"
SHORT = 4
"""Texts with fewer characters are hidden only where they stand alone, and in their own case."""
LINE = 8
"""Lines of a secret with fewer characters are no secrets of their own."""
KEY = 16
"""Parts of a path with as many characters are keys."""
BEGINNING = 12
"""How many characters of a secret that was cut distinguish it from another text that begins like it."""

PLAIN_HEADERS = ("accept", "content-type", "user-agent")
_KINDS = ("basic", "bearer", "token")
_CUT = re.compile(r"$|['\"`…]|\.\.\.", re.MULTILINE)


def hide(text: str, secrets: Iterable[str]) -> str:
    """Return a text with `***` instead of secrets.

    >>> hide("cannot reach db.internal as ann: a banana", {"db.internal", "a"})
    'cannot reach *** as ann: *** banana'
    """
    hidden = _forms(secrets if isinstance(secrets, frozenset) else frozenset(secrets))
    # Most texts have nothing to hide, so the cheap test comes first.
    folded = text.lower()
    if any(form in folded for form in hidden.folded):
        text = hidden.pattern.sub(HIDDEN, text)
    for form in hidden.long:
        if form[:BEGINNING] in text:
            text = _without_beginnings(text, form)
    return text


def secrets_in(value: str) -> set[str]:
    """A secret, and the passwords in it when it is an address: drivers show them on their own."""
    if not value.strip():
        return set()
    parts = {value, value.strip()}
    for password in passwords_in(value):
        parts |= {password, unquote(password)}
    return parts


def model_secrets(model: Options) -> set[str]:
    """What is secret in the fields of a node: of those that `repr` leaves out, and of those with the name of a secret."""
    secrets: set[str] = set()
    fields = type(model).model_fields
    for name, value in (*model, *(model.model_extra or {}).items()):
        is_secret = is_secret_name(name) or (name in fields and not fields[name].repr)
        secrets |= _secrets_of(value, is_secret=is_secret)
    return secrets


def _secrets_of(value: Any, *, is_secret: bool) -> set[str]:
    match value:
        case Options():
            return model_secrets(value)
        case Mapping():
            parts = (
                _secrets_of(item, is_secret=is_secret or is_secret_name(str(name)))
                for name, item in value.items()
                if str(name).lower() not in PLAIN_HEADERS
            )
            return set().union(*parts)
        case list() | tuple():
            return set().union(*(_secrets_of(item, is_secret=is_secret) for item in value))
        case str() if "://" in value:
            return secrets_in_address(value) if is_secret else set(passwords_in(value))
        case str() if is_secret:
            return credential(value)
    return set()


def credential(value: str) -> set[str]:
    """A secret, and its part after the word for its kind, as in `Bearer abc`."""
    kind, blank, rest = value.strip().partition(" ")
    return secrets_in(value) | ({rest} if blank and kind.lower() in _KINDS else set())


def secrets_in_address(url: str) -> set[str]:
    """The passwords in an address, and what of its path may be a key, as in that of a webhook."""
    secrets = secrets_in(url) - {url, url.strip()}
    try:
        parts = urlsplit(url)
    except ValueError:
        return secrets
    if parts.scheme not in ("http", "https"):
        return secrets
    segments = parts.path.strip("/").split("/")
    if len(segments) > 1:
        secrets.add(parts.path)
    return secrets | {segment for segment in segments if len(segment) >= KEY} | ({parts.query} - {""})


@lru_cache(maxsize=1_000)
def slow_hash(secrets: bytes) -> bytes:
    """A hash of a text that may be secret, from which nobody finds it by trying."""
    return hashlib.pbkdf2_hmac("sha256", secrets, b"secrets of a node of penstock", 20_000)


class _Forms:
    """Secrets as texts may have them."""

    def __init__(self, secrets: frozenset[str]) -> None:
        forms = {form for secret in secrets for form in forms_of(secret)}
        ordered = sorted(forms, key=len, reverse=True)
        self.folded = tuple({form.lower() for form in ordered})
        self.pattern = re.compile(
            "|".join(
                rf"(?<!\w){re.escape(form)}(?!\w)" if len(form) < SHORT else f"(?i:{re.escape(form)})"
                for form in ordered
            )
        )
        self.long = tuple(form for form in ordered if len(form) > BEGINNING)


@lru_cache(maxsize=16)
def _forms(secrets: frozenset[str]) -> _Forms:
    return _Forms(secrets)


def forms_of(secret: str) -> set[str]:
    """A secret as texts may have it.

    >>> sorted(forms_of("a b"))
    ['a b', 'a%20b', 'a+b']
    """
    return {form for form in _written(secret) if form.strip()}


def _written(secret: str) -> Iterator[str]:
    texts = [secret, secret.strip()]
    if "\n" in secret:
        texts += [line.strip() for line in secret.splitlines() if len(line.strip()) >= LINE]
    for text in texts:
        yield text
        yield repr(text)[1:-1]
        # Both kinds of quotes are in a text that Python writes with backslashes.
        yield repr(f"{text}'\"")[1:-4]
        yield json.dumps(text)[1:-1]
        yield json.dumps(text, ensure_ascii=False)[1:-1]
        yield text.replace("'", "''")
        yield quote(text, safe="")
        yield quote(text)
        yield quote_plus(text)


def _without_beginnings(text: str, form: str) -> str:
    """The text without the beginning of a secret, where it was cut."""
    parts, at = [], 0
    while (start := text.find(form[:BEGINNING], at)) >= 0:
        end = start + BEGINNING
        while end < len(text) and end - start < len(form) and text[end] == form[end - start]:
            end += 1
        is_cut = _CUT.match(text, end) is not None
        parts += [text[at:start], HIDDEN if is_cut else text[start:end]]
        at = end
    return "".join((*parts, text[at:]))
