"""ClickHouse's client: its HTTP protocol, rows in and out as Arrow, and what its errors mean."""

from __future__ import annotations

import http.client
import json
import ssl
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Self
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from pydantic import AfterValidator

from penstock.errors import ConfigError
from penstock.options import mistake

if TYPE_CHECKING:
    import pyarrow as pa

SHOWN = 500

# Exceptions of ClickHouse's that go away by themselves: overload, lost keepers and replicas, cancelled queries, too many parts.
TRANSIENT = frozenset(
    {159, 198, 202, 203, 209, 210, 225, 236, 241, 242, 252, 279, 285, 286, 319, 394, 425, 473, 745, 999}
)
# Exceptions that are about a value: it does not fit its column, or breaks a constraint.
OF_ROWS = frozenset({6, 27, 38, 41, 69, 70, 72, 131, 321, 349, 407, 469, 691})
TRANSIENT_STATUS = frozenset({408, 425, 429, 502, 503, 504})


class ClickHouseError(Exception):
    """A request that ClickHouse has not done."""

    transient: bool = False
    """Whether the same request may succeed in a while."""
    of_rows: bool = False
    """Whether a row is refused, and not the request."""


class Refusal(ClickHouseError):
    """An answer that is not 200, with ClickHouse's code of the exception when it sent one."""

    def __init__(self, text: str, *, status: int, code: int | None) -> None:
        super().__init__(text)
        self.transient = status in TRANSIENT_STATUS if code is None else code in TRANSIENT
        self.of_rows = code in OF_ROWS


def passing(error: Exception) -> str | None:
    """Say what an error means that goes away by itself; None when it does not, or is not ClickHouse's."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return None
    if isinstance(error, ClickHouseError):
        passes = error.transient
    else:
        passes = isinstance(error, OSError | http.client.HTTPException)
    return (str(error) or type(error).__name__).splitlines()[0][:200] if passes else None


@dataclass(frozen=True, slots=True)
class ClickHouseAddress:
    """Where a server is and who asks; it travels to Spark's tasks."""

    host: str
    port: int
    secure: bool
    path: str
    database: str
    user: str = field(repr=False)
    password: str = field(repr=False)
    settings: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 300.0

    @classmethod
    def of(cls, url: str) -> ClickHouseAddress:
        """Read an address: `https://user:password@host:8443/database`, or with `?database=`.

        >>> address = ClickHouseAddress.of("http://me:x@db.example/shop")
        >>> address.host, address.port, address.database, address.location
        ('db.example', 8123, 'shop', 'db.example:8123/shop')
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"an address of ClickHouse starts with http:// or https://, got {parts.scheme or 'no scheme'!r}",
                code="STREAM_OPTION_VALUE",
                hint="for example http://user:password@host:8123/database",
            )
        secure = parts.scheme == "https"
        parameters = dict(parse_qsl(parts.query))
        database = parameters.pop("database", "") or unquote(parts.path.strip("/")) or "default"
        return cls(
            host=parts.hostname,
            port=parts.port or (8443 if secure else 8123),
            secure=secure,
            path="/",
            database=database,
            user=parameters.pop("user", "") or unquote(parts.username or "default"),
            password=parameters.pop("password", "") or unquote(parts.password or ""),
            settings=parameters,
        )

    def completed(
        self,
        *,
        user: str | None,
        password: str | None,
        database: str | None,
        settings: Mapping[str, str],
        timeout_ms: int,
    ) -> ClickHouseAddress:
        """Return the address with what options say beside it."""
        return replace(
            self,
            user=self.user if user is None else user,
            password=self.password if password is None else password,
            database=self.database if database is None else database,
            settings={**self.settings, **settings},
            seconds=timeout_ms / 1000,
        )

    @property
    def location(self) -> str:
        """For people, without secrets."""
        return f"{self.host}:{self.port}/{self.database}"


def checked(url: str) -> str:
    """Return an address as it is, for the options of sources and sinks, which refuse one that is wrong."""
    try:
        ClickHouseAddress.of(url)
    except ConfigError as error:
        raise mistake(f"is wrong: {error.message}", hint=error.hint) from None
    return url


Url = Annotated[str, AfterValidator(checked)]
"""An address as users write it."""


class ClickHouseClient:
    """One connection, made when it is needed and made again after an error."""

    def __init__(self, address: ClickHouseAddress) -> None:
        self._address = address
        self._connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def execute(self, query: str) -> None:
        """Run a statement that has no rows."""
        self._request({}, query.encode())

    def rows(self, query: str) -> list[dict[str, Any]]:
        """The rows of a query."""
        settings = {"default_format": "JSONEachRow", "output_format_json_quote_64bit_integers": "0"}
        content = self._request(settings, query.encode())
        return [json.loads(line) for line in content.decode().splitlines()]

    def insert(self, into: str, rows: pa.Table, settings: Mapping[str, str]) -> None:
        """Insert rows as one batch: of two inserts with one token but another number of batches, both would be stored."""
        import pyarrow as pa

        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, rows.schema) as writer:
            writer.write_table(rows.combine_chunks())
        query = f"INSERT INTO {into} FORMAT ArrowStream"
        self._request({"query": query, **settings}, memoryview(stream.getvalue()))

    def batches(self, query: str, settings: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
        """The rows of a query while they arrive; an error in the middle is raised there."""
        import pyarrow as pa

        with self._answered(settings, f"{query} FORMAT ArrowStream".encode()) as answer:
            try:
                with pa.ipc.open_stream(answer) as reader:
                    yield from reader
                    answer.read()  # what is behind the end mark: without it the connection could not be used again
            except pa.ArrowInvalid as error:
                raise ClickHouseError(f"the answer is cut short: {error}") from error

    def _request(self, settings: Mapping[str, str], body: bytes | memoryview) -> bytes:
        # So that an error in the middle changes the status.
        with self._answered({"wait_end_of_query": "1", **settings}, body) as answer:
            return answer.read()

    @contextmanager
    def _answered(
        self, settings: Mapping[str, str], body: bytes | memoryview
    ) -> Iterator[http.client.HTTPResponse]:
        """The answer to a request, to be read to its end; after an error the connection is closed."""
        address = self._address
        parameters = {"database": address.database, **address.settings, **settings}
        try:
            connection = self._connected()
            try:
                connection.request(
                    "POST",
                    f"{address.path}?{urlencode(parameters)}",
                    body,
                    _headers(address),
                )
            except ConnectionError:
                if connection.sock is None:
                    raise
                # A server that refuses early has sent the reason before it closed the connection.
            answer = connection.getresponse()
            if answer.status != 200:
                raise _refusal(answer)
            yield answer
        except BaseException:
            self.close()
            raise

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            kind = http.client.HTTPSConnection if self._address.secure else http.client.HTTPConnection
            self._connection = kind(self._address.host, self._address.port, timeout=self._address.seconds)
        return self._connection


def _headers(address: ClickHouseAddress) -> dict[str, str]:
    login = b64encode(f"{address.user}:{address.password}".encode()).decode()
    return {"Authorization": f"Basic {login}", "User-Agent": "penstock"}


def _refusal(answer: http.client.HTTPResponse) -> Refusal:
    code = answer.getheader("X-ClickHouse-Exception-Code")
    text = answer.read()[:SHOWN].decode(errors="replace").strip() or f"{answer.status} {answer.reason}"
    return Refusal(text, status=answer.status, code=int(code) if code else None)
