"""The options of the service that handles rows."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from penstock.options import Count, Duration, Options, Texts, mistake
from penstock.transforms.columns import Columns

if TYPE_CHECKING:
    from typing import Self

AUTHORIZATION = "authorization"


class HandlerOptions(Options):
    """A service that takes rows and answers with rows."""

    url: str = Field(repr=False, description="where rows are posted, as a JSON array of objects")
    headers: Texts = Field({}, repr=False, description="more headers of each request")
    secret_name: str | None = Field(
        None,
        description="an environment variable whose value is sent in the header `Authorization`, `Bearer ...` for example",
    )
    one_row_per_request: bool = Field(
        False, description="one object per request, and not an array of objects"
    )
    batch_size: Count = Field(500, description="rows per request")
    parallelism: Count = Field(4, description="requests at the same time, in each of Spark's tasks")
    columns: Columns | None = Field(
        None,
        validation_alias="schema",
        description="the columns of the rows that it answers, as `{id: bigint, name: string}` or DDL; "
        "default: those of the rows that it takes",
    )
    schema_override: Columns | None = Field(None, description="another name for `schema`")
    timeout: Duration = Field(
        "30 seconds", validate_default=True, description="how long one request may take"
    )
    retry_for: Duration = Field(
        "5 minutes",
        validate_default=True,
        description="how long a request is tried again when the service does not answer, or answers 408, "
        "425, 429 or 5xx; then the query fails",
    )

    @field_validator("url")
    @classmethod
    def _is_http(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise mistake(
                "of a handler starts with http:// or https://", hint="for example https://host/path"
            )
        return url

    @model_validator(mode="after")
    def _says_things_once(self) -> Self:
        if self.columns is not None and self.schema_override is not None:
            raise mistake(
                "schema and schema_override are two names for one thing", hint="leave one of them out"
            )
        if self.secret_name is not None and AUTHORIZATION in map(str.lower, self.headers):
            raise mistake("secret_name and headers both have an Authorization", hint="leave one of them out")
        return self

    @property
    def answer_columns(self) -> str | None:
        """The columns of the rows that it answers; None for those that it takes."""
        return self.columns if self.columns is not None else self.schema_override
