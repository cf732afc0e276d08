"""The fields of a pipeline's file beside its nodes, as models."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, field_validator

from penstock.backend.address import parse
from penstock.backend.job_name import check_job_name
from penstock.backend.open import DIALECTS
from penstock.data.duration import milliseconds
from penstock.errors import ConfigError, suggest
from penstock.options import Options, mistake

ENDING_TRIGGERS = ("once", "available_now")


def _as_job_name(value: str) -> str:
    try:
        check_job_name(value)
    except ConfigError as error:
        raise mistake(f"cannot be {value!r}", hint=error.hint) from None
    if "/" in value or not value.strip("."):
        hint = "leave slashes out, which stand before the names of its groups, and use more than dots"
        raise mistake(f"cannot be {value!r}", hint=hint)
    return value


def _as_trigger(value: Any) -> int | str:
    if value in ENDING_TRIGGERS:
        return str(value)
    try:
        return milliseconds(value, what="it")
    except ConfigError:
        hint = 'for example trigger: "5 seconds", or trigger: available_now'
        raise mistake(f"must be a duration, once or available_now, got {value!r}", hint=hint) from None


def _as_state(value: str) -> str:
    try:
        scheme = parse(value).scheme
    except ConfigError as error:
        raise mistake("is not the URL of a state database", hint=error.hint) from None
    if scheme not in DIALECTS.builtin and scheme not in DIALECTS:
        raise mistake(
            f"names no state database: '{scheme}'", hint=suggest(scheme, DIALECTS.names(), what="one")
        )
    return value


def _as_folder(value: str) -> str:
    folder = value.removeprefix("file://")
    if not folder.strip() or "\0" in folder:
        raise mistake("is empty", hint="name a folder, or leave it out for one in the home of penstock")
    if "://" in folder:
        raise mistake("must be a folder of this machine", hint="the state database may be elsewhere: state:")
    return folder


Trigger = Annotated[
    int | str,
    BeforeValidator(_as_trigger),
    WithJsonSchema(
        {"anyOf": [{"enum": list(ENDING_TRIGGERS)}, {"type": "string"}, {"type": "integer", "minimum": 0}]}
    ),
]
TestRows = list[dict[str, Any]]
"""Rows as a test has them: the values of columns by their names."""


class PipelineFields(Options):
    """The fields of a file that are about the whole pipeline."""

    name: Annotated[str, AfterValidator(_as_job_name)] | None = Field(
        None,
        description="the name of the pipeline, by which `penstock jobs` knows it; default: that of the file",
    )
    description: str | None = Field(None, description="what the pipeline is for")
    state: Annotated[str, AfterValidator(_as_state)] | None = Field(
        None,
        repr=False,
        description="the state database, as `sqlite:///state.db` or `postgresql://...`; default: that of all queries",
    )
    trigger: Trigger | None = Field(
        None,
        description="when epochs begin: a duration between them, or `available_now` (all that is there, then the end); default: "
        "200 ms, or as often as the sources are polled",
    )
    checkpoint: Annotated[str, AfterValidator(_as_folder)] | None = Field(
        None,
        description="the folder of the checkpoint; default: one in the home of penstock by the pipeline's name",
    )


class TestFields(Options):
    """One test: rows that sources give, and rows that nodes must have then."""

    __test__ = False

    name: str = Field(description="what is tested, as it is shown")
    given: dict[str, TestRows] = Field(
        {},
        description="by the name of a source: its rows; other sources have none. By that of a handler, a "
        "look-up, a script or a plugin: the rows that stand for its answers",
    )
    expect: dict[str, TestRows] = Field(
        description="by the name of a node: the rows that it must have, in any order; of a sink, those that it takes"
    )

    @field_validator("expect")
    @classmethod
    def _says_something(cls, expect: dict[str, TestRows]) -> dict[str, TestRows]:
        if not expect:
            raise mistake("names no node", hint="expect: {a_node: [{id: 1}]}, or [] for no rows")
        return expect
