"""The options of look-ups."""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from penstock.options import Count, Duration, Options, PathText, Texts, mistake
from penstock.sources.postgres.address import EXAMPLE, is_address

Backend = Literal["postgres", "http", "file"]
Missing = Literal["null", "drop", "error"]

_OF_BACKENDS: Mapping[str, tuple[str, ...]] = {
    "postgres": ("url", "table", "query"),
    "http": ("url", "method", "headers", "schema", "parallelism"),
    "file": ("path", "format", "schema"),
}
_FILE_FORMATS = Literal["csv", "json", "parquet", "orc", "avro"]


def _as_pairs(value: Any) -> Any:
    """Names, or names with other names for them."""
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",") if name.strip()]
    if isinstance(value, list | tuple):
        return {str(name): str(name) for name in value}
    return value


Pairs = Annotated[
    dict[str, str],
    BeforeValidator(_as_pairs),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}},
                {"type": "object", "additionalProperties": {"type": "string"}},
            ]
        }
    ),
]
"""A name, a list of names, or names with other names for them."""


class LookupOptions(Options):
    """Where values are looked up, by which columns, and how long an answer is good."""

    backend: Backend = Field(description="what has the values: `postgres`, `http` or `file`")
    on: Pairs = Field(
        {},
        description="the columns by which rows are looked up; with other names there as a dictionary, `{customer_id: id}`",
    )
    columns: Pairs = Field(
        {},
        description="the columns to add; under other names as a dictionary, `{name: customer_name}`. Default: all but the key",
    )
    url: str | None = Field(
        None,
        repr=False,
        description="PostgreSQL: its address, default: `PENSTOCK_POSTGRES_URL`; HTTP: the address of a "
        "service, with the columns of "
        "`on` in braces for `method: GET`, as in `https://host/customers/{customer_id}`",
    )
    table: str | None = Field(None, description="PostgreSQL only: `table` or `schema.table`")
    query: str | None = Field(None, description="PostgreSQL only: a query in the place of a table")
    path: PathText | None = Field(
        None, description="file only: a file or folder, local or in an object store"
    )
    format: _FILE_FORMATS | None = Field(
        None, description="file only: its format; default: the ending of the path says it"
    )
    schema_: Texts = Field(
        {},
        validation_alias="schema",
        description="the columns with their types: those to add for http, which needs them, and all of a "
        "file in CSV or JSON, whose types "
        "are inferred without it",
    )
    method: Literal["GET", "POST"] = Field(
        "GET",
        description="HTTP only: `GET` asks for one key at a time and is answered by an object, 404 where "
        "there is none; `POST` sends an array "
        "of objects with keys and is answered by an array of objects, which have the key",
    )
    headers: Texts = Field({}, repr=False, description="HTTP only: more headers of each request")
    parallelism: Count = Field(8, description="HTTP only: requests at once in each task, with `GET`")
    batch_size: Count = Field(1_000, description="keys per query, or per request with `POST`")
    ttl: Duration = Field(
        "5 minutes",
        validate_default=True,
        description="how long an answer is good, also one that says there is nothing; 0 asks anew for each batch of rows",
    )
    cache_size: Count = Field(
        100_000,
        description="keys that each worker process keeps; those that were not used for longest go first",
    )
    missing: Missing = Field(
        "null",
        description="what happens to a row whose key is not there: `null` leaves the columns empty, "
        "`drop` leaves the row out, `error` is an "
        "error of the row (`on_error`). Deletes pass",
    )
    timeout: Duration = Field(
        "10 seconds", validate_default=True, description="how long one query or request may take"
    )
    retry_for: Duration = Field(
        "30 seconds",
        validate_default=True,
        description="how long to try again when the other system does not answer, or answers 408, 425, 429 or 5xx",
    )

    @model_validator(mode="after")
    def _fits_its_backend(self) -> Self:
        taken = _OF_BACKENDS[self.backend]
        for name in sorted({name for names in _OF_BACKENDS.values() for name in names}):
            own = "schema_" if name == "schema" else name
            if name not in taken and getattr(self, own) != type(self).model_fields[own].default:
                raise mistake(
                    f"{name} is no field of the backend {self.backend}", hint=f"it takes {', '.join(taken)}"
                )
        if self.backend == "postgres" and (self.table is None) == (self.query is None):
            raise mistake("backend postgres needs either `table` or `query`")
        if self.backend == "postgres" and self.url is not None and not is_address(self.url):
            raise mistake("url is not an address of PostgreSQL", hint=f"for example {EXAMPLE}")
        if self.backend == "file" and self.path is None:
            raise mistake("backend file needs `path`")
        if self.backend == "http":
            self._check_http()
        return self

    def _check_http(self) -> None:
        parts = urlsplit(self.url or "")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise mistake(
                "backend http needs a `url` that starts with http:// or https://",
                hint="for example https://host/customers/{customer_id}",
            )
        if not self.schema_:
            raise mistake(
                "backend http needs `schema`: the columns to add, with their types",
                hint="schema: {name: string, credit: double}",
            )
        if not self.on:
            raise mistake("backend http needs `on`: the columns by which rows are looked up")
        try:
            named = {name for _, name, _, _ in Formatter().parse(self.url or "") if name is not None}
        except ValueError:
            raise mistake("url has a brace that is not closed") from None
        unknown = sorted(named - set(self.on))
        if unknown:
            raise mistake(f"url has {{{unknown[0]}}}, which is not among the columns of `on`")
        if self.method == "GET" and named != set(self.on):
            absent = next(name for name in self.on if name not in named)
            raise mistake(
                f"url has no {{{absent}}}, though `on` does",
                hint="put each column of `on` into it in braces, or use `method: POST`",
            )
