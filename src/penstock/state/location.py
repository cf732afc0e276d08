"""Where state is kept, as users write it: a path of this machine, or a URI of an object store."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from penstock.config import Settings
from penstock.errors import ConfigError, ConnectorError, suggest
from penstock.state.files import Files, LocalFiles
from penstock.state.object_store import ObjectFiles, access_hint

S3_SCHEMES = ("s3", "s3a", "s3n")
SCHEMES = (*S3_SCHEMES, "gs", "abfs", "abfss", "file")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(/+)(.*)", re.S)
_FORMS = "a path of this machine, s3://bucket/prefix, gs://bucket/prefix or abfss://container@account.dfs.core.windows.net/prefix"
# PyArrow's names of what Spark's S3 client is told.
_S3_OPTIONS = {
    "endpoint": "endpoint_override",
    "endpoint.region": "region",
    "access.key": "access_key",
    "secret.key": "secret_key",
    "session.token": "session_token",
}
_GS_RETRY_SECONDS = 20
_S3_CONF = "spark.hadoop.fs.s3a."


def is_remote(location: str | os.PathLike[str]) -> bool:
    """Whether a location is in an object store; ConfigError when it is neither that nor a path.

    >>> is_remote("s3://bucket/orders"), is_remote("backup/orders"), is_remote("file:///tmp/orders")
    (True, False, False)
    """
    return _scheme(os.fspath(location)) not in ("", "file")


def local_folder(location: str | os.PathLike[str]) -> Path | None:
    """The path of this machine that a location is; None for an object store."""
    text = os.fspath(location)
    scheme = _scheme(text)
    if scheme == "":
        return Path(text).expanduser().resolve()
    return Path(unquote(urlsplit(text).path)).resolve() if scheme == "file" else None


def open_location(location: str | os.PathLike[str], settings: Settings) -> tuple[Files, Path]:
    """The storage of a location, and its path there. S3 is reached as sources and sinks reach it, by `spark.hadoop.fs.s3a.*`."""
    folder = local_folder(location)
    if folder is not None:
        return LocalFiles(), folder
    text = os.fspath(location)
    scheme = _scheme(text)
    shown = "s3" if scheme in S3_SCHEMES else scheme
    try:
        store, path = _s3(text, settings) if shown == "s3" else _other(text)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ConnectorError(
            f"the store cannot be opened: {error}", code="STATE_STORE", hint=access_hint(shown), where=text
        ) from error
    return ObjectFiles(store, shown, settings.home / "cache" / "objects"), Path(path)


def _scheme(text: str) -> str:
    """The scheme of a location, nothing for a path of this machine; ConfigError when it looks like a scheme and is none."""
    match = _SCHEME.match(text)
    if match is None:
        scheme, mark, _ = text.partition("//")
        if mark and scheme in SCHEMES:
            raise _unknown(text, f"'{text}' has no ':' behind its scheme")
        return ""
    scheme = match[1].lower()
    if scheme not in SCHEMES:
        raise _unknown(
            text, f"'{text}' has the unknown scheme '{match[1]}'", suggest(scheme, SCHEMES, what="scheme")
        )
    if scheme != "file" and (len(match[2]) != 2 or not match[3].strip("/")):
        raise _unknown(text, f"'{text}' names no bucket")
    return scheme


def _unknown(text: str, why: str, hint: str = "") -> ConfigError:
    parts = [part for part in (hint, f"write {_FORMS}; a folder whose name has a colon is ./{text}") if part]
    return ConfigError(why, code="STATE_LOCATION", hint="; ".join(parts))


def _s3(text: str, settings: Settings) -> tuple[Any, str]:
    from pyarrow import fs

    options: dict[str, Any] = {
        option: settings.conf[f"{_S3_CONF}{name}"]
        for name, option in _S3_OPTIONS.items()
        if f"{_S3_CONF}{name}" in settings.conf
    }
    path = _SCHEME.match(text)
    assert path is not None
    if not options:
        return _other(f"s3://{path[3]}")
    if "endpoint_override" in options:
        # Stores other than Amazon's have no regions to ask for.
        options.setdefault("region", "us-east-1")
        options["force_virtual_addressing"] = settings.conf.get(f"{_S3_CONF}path.style.access") == "false"
    return fs.S3FileSystem(**options), path[3].strip("/")


def _other(text: str) -> tuple[Any, str]:
    from pyarrow import fs

    if text.startswith("gs:") and "?" not in text:
        # Google's client would look for credentials, or for a store that is away, for a quarter of an hour.
        text += f"?retry_limit_seconds={_GS_RETRY_SECONDS}"
    store, path = fs.FileSystem.from_uri(text)
    return store, path.strip("/")
