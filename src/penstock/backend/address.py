"""Where a state database is: the URL as users write it, and the same without its password."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from sqlalchemy import URL

FORMS = "sqlite:///state.db, sqlite:////var/lib/penstock/state.db or postgresql://user:password@host/database"

_SECRET_IN_URL = re.compile(r"(?<=://)([^\s:/@?#]*):(\S*)@")
_PASSWORD = re.compile(r"//[^\s:/@?#]*:(\S*)@")
_SECRET_IN_WORDS = re.compile(
    r"((?:password|passwd|pwd|secret|token|api[_.-]?key|access[_.-]?key)[\w.-]*\s*[=:]\s*)('[^']*'|[^\s&,;]+)",
    re.I,
)
_LONG_USER = re.compile(r"(?<=://)[^\s:/@?#]{16,}(?=@)")
"""A name of a user so long that it is a token."""
_SECRET_NAME = re.compile(
    r"(?i:password|passwd|pwd$|secret(?!_name$)|passphrase|credential|cookie|jaas|(?:api|access|private|keystore)[_.-]?key|[._-]pem$)"
    r"|(?i:(?:^|[._-])(?:token|auth|authorization|sas|signature)$)"
    r"|[a-z](?:Token|Auth|Authorization|Signature)$"
)


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed URL: `scheme` chooses the backend, `location` is what errors and outputs show."""

    scheme: str
    location: str
    url: str = field(repr=False)


def parse(url: str) -> Address:
    """Read a URL; a wrong one is an error that shows the forms that work, and never a password.

    >>> parse("postgresql://ann:secret@db/penstock").location
    'postgresql://ann:***@db/penstock'
    """
    scheme, mark, _ = url.partition("://")
    scheme = scheme.partition("+")[0].lower()
    if not mark or not re.fullmatch(r"[a-z][a-z0-9.-]*", scheme):
        raise ConfigError(
            f"'{hidden(url)}' is not the URL of a state database", code="STATE_URL", hint=f"write {FORMS}"
        )
    if scheme == "sqlite":
        url = _absolute(url)
    return Address("postgresql" if scheme == "postgres" else scheme, hidden(url), url)


def sqlite_url(path: Path) -> str:
    """The URL of a SQLite file."""
    return f"sqlite:///{path.absolute()}"


def _absolute(url: str) -> str:
    """The URL of a SQLite file as any process can use it, wherever it runs."""
    path, mark, query = url.removeprefix("sqlite:///").partition("?")
    if not url.startswith("sqlite:///") or path in ("", ":memory:"):
        return url
    return sqlite_url(Path(path).expanduser()) + mark + query


def as_sqlalchemy(address: Address) -> URL:
    """The URL in SQLAlchemy's form."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(address.url)
    except (ArgumentError, ValueError):
        # Its message repeats the URL with the password.
        url = None
    # A password with a bare @ in it is cut there, and its rest would be shown as the host.
    if url is None or "@" in f"{url.host}{url.database}":
        raise ConfigError(
            f"'{address.location}' is not the URL of a state database",
            code="STATE_URL",
            hint=f"write {FORMS}; special characters in a password are written as %40 for @, %2F for /",
        )
    return url


def hidden(text: str) -> str:
    """The text with the passwords in it replaced by `***`, in URLs and in words like `password=...`.

    >>> hidden("cannot reach postgresql://ann:s3cret@db/x?sslpassword=abc")
    'cannot reach postgresql://ann:***@db/x?sslpassword=***'
    """
    return _SECRET_IN_WORDS.sub(r"\1***", _LONG_USER.sub("***", _SECRET_IN_URL.sub(r"\1:***@", text)))


def passwords_in(text: str) -> list[str]:
    """The passwords in a text, in addresses and in words like `password=...`; the whole of it may be malformed.

    >>> passwords_in("postgresql//ann:s3cret@db/x?sslpassword=abc")
    ['s3cret', 'abc']
    """
    passwords = [match[1] for match in _PASSWORD.finditer(text)]
    passwords += [match[2].strip("'") for match in _SECRET_IN_WORDS.finditer(text)]
    return [password for password in passwords if password]


def is_secret_name(name: str) -> bool:
    """Whether the name of an option says that its value is secret.

    >>> [name for name in ("kafka.sasl.password", "apiToken", "topic", "tokens") if is_secret_name(name)]
    ['kafka.sasl.password', 'apiToken']
    """
    return _SECRET_NAME.search(name) is not None


def hidden_values(value: Any) -> Any:
    """A JSON value with every secret in it replaced: what a name calls secret, and passwords in texts.

    >>> hidden_values({"kafka": {"sasl.password": "x", "topic": "t"}})
    {'kafka': {'sasl.password': '***', 'topic': 't'}}
    """
    if isinstance(value, dict):
        return {
            key: "***" if item is not None and is_secret_name(str(key)) else hidden_values(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [hidden_values(item) for item in value]
    return hidden(value) if isinstance(value, str) else value
