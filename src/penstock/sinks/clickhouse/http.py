"""ClickHouse's HTTP protocol: statements with rows as JSON, and inserts of Arrow tables."""

from __future__ import annotations

import http.client
import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from penstock.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

SHOWN = 500

# Exceptions of ClickHouse's that pass by themselves: overload, lost keepers and replicas, cancelled queries, too many parts.
PASSING = frozenset(
    {159, 198, 202, 203, 209, 210, 225, 236, 241, 242, 252, 279, 285, 286, 319, 394, 425, 473, 745, 999}
)
# Exceptions that are about a value: it does not fit its column, or breaks a constraint.
OF_ROWS = frozenset({6, 27, 38, 41, 69, 70, 72, 131, 321, 349, 407, 469, 691})
PASSING_STATUS = frozenset({408, 425, 429, 502, 503, 504})


class Refusal(Exception):
    """An answer that is not 200, with ClickHouse's code of the exception when it sent one."""

    def __init__(self, text: str, *, status: int, code: int | None) -> None:
        super().__init__(text, status, code)
        self.text, self.status, self.code = text, status, code

    def __str__(self) -> str:
        return self.text

    @property
    def passes(self) -> bool:
        """Whether the same request may be answered otherwise in a while."""
        return self.status in PASSING_STATUS if self.code is None else self.code in PASSING

    @property
    def of_rows(self) -> bool:
        """Whether a row is refused, and not the request."""
        return self.code in OF_ROWS


@dataclass(frozen=True, slots=True)
class Address:
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
    def of(cls, url: str) -> Address:
        """Read an address: `https://user:password@host:8443/database`, or with `?database=`.

        >>> address = Address.of("http://me:x@db.example/shop")
        >>> address.host, address.port, address.database, address.place
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
        given = dict(parse_qsl(parts.query))
        database = given.pop("database", "") or unquote(parts.path.strip("/")) or "default"
        return cls(
            host=parts.hostname,
            port=parts.port or (8443 if secure else 8123),
            secure=secure,
            path="/",
            database=database,
            user=given.pop("user", "") or unquote(parts.username or "default"),
            password=given.pop("password", "") or unquote(parts.password or ""),
            settings=given,
        )

    @property
    def place(self) -> str:
        """For people, without secrets."""
        return f"{self.host}:{self.port}/{self.database}"

    def with_options(self, options: Mapping[str, Any]) -> Address:
        """This address with what the options `user`, `password`, `database` and `settings` say."""
        settings = options.get("settings", {})
        if not isinstance(settings, Mapping):
            raise ConfigError(
                f"settings must be a dictionary, got {type(settings).__name__}",
                code="STREAM_OPTION_VALUE",
                hint='for example .option("settings", {"insert_quorum": 2})',
            )
        return replace(
            self,
            user=str(options.get("user", self.user)),
            password=str(options.get("password", self.password)),
            database=str(options.get("database", self.database)),
            settings={**self.settings, **{str(name): _setting(value) for name, value in settings.items()}},
        )


class Client:
    """One connection, made when it is needed and made again after an error."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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

    def _request(self, settings: Mapping[str, str], body: bytes | memoryview) -> bytes:
        address = self._address
        given = {
            "database": address.database,
            "wait_end_of_query": "1",  # errors in the middle have a status of their own
            **address.settings,
            **settings,
        }
        try:
            connection = self._connected()
            try:
                connection.request(
                    "POST",
                    f"{address.path}?{urlencode(given)}",
                    body,
                    _headers(address),
                )
            except ConnectionError:
                if connection.sock is None:
                    raise
                # A server that refuses early has told why before it closed the connection.
            answer = connection.getresponse()
            content = answer.read()
        except BaseException:
            self.close()
            raise
        if answer.status == 200:
            return content
        self.close()
        code = answer.getheader("X-ClickHouse-Exception-Code")
        text = content[:SHOWN].decode(errors="replace").strip() or f"{answer.status} {answer.reason}"
        raise Refusal(text, status=answer.status, code=int(code) if code else None)

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            kind = http.client.HTTPSConnection if self._address.secure else http.client.HTTPConnection
            self._connection = kind(self._address.host, self._address.port, timeout=self._address.seconds)
        return self._connection


def _headers(address: Address) -> dict[str, str]:
    told = b64encode(f"{address.user}:{address.password}".encode()).decode()
    return {"Authorization": f"Basic {told}", "User-Agent": "penstock"}


def _setting(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
