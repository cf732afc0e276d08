"""The options of a script."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator

from penstock.data.byte_size import byte_size
from penstock.errors import ConfigError
from penstock.options import Duration, Options, mistake
from penstock.transforms.columns import Columns
from penstock.transforms.script.source import forbidden_import, names_invoke

LEAST_MEMORY = 16_000_000


def _as_memory(value: Any) -> int:
    try:
        size = byte_size(value, what="it")
    except ConfigError as error:
        raise mistake(error.message.removeprefix("it "), hint=error.hint) from None
    if size < LEAST_MEMORY:
        raise mistake(f"must be 16 MB at least, got {value!r}")
    return size


Memory = Annotated[
    int,
    BeforeValidator(_as_memory),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": LEAST_MEMORY}, {"type": "string", "examples": ["256 MB"]}]}
    ),
]


class ScriptOptions(Options):
    """A script that takes each row and returns none, one or several."""

    language: Literal["javascript", "typescript", "js", "ts"] = Field(
        "javascript", description="the language: `javascript` (`js`) or `typescript` (`ts`)"
    )
    script: str = Field(
        description="the program, with a function `invoke(row)`: what it returns is null (no row), an "
        "object (one row) or an array of objects"
    )
    columns: Columns | None = Field(
        None,
        validation_alias="schema",
        description="the columns of what `invoke` returns, as `{id: bigint, name: string}` or DDL; "
        "default: those of the rows that it takes",
    )
    bigint: bool = Field(
        False,
        description="whether BIGINT comes as a BigInt; otherwise it is a Number, and a row with one that "
        "a Number cannot hold exactly is an error",
    )
    timeout: Duration = Field(
        "30 seconds", validate_default=True, description="how long a batch of up to 10,000 rows may take"
    )
    memory: Memory = Field(
        "256 MB",
        validate_default=True,
        description="how much memory the script may use in each Python worker",
    )

    @field_validator("script")
    @classmethod
    def _is_a_script(cls, script: str) -> str:
        position = forbidden_import(script)
        if position is not None:
            raise mistake(
                f"has an import in line {position[0]}, column {position[1]}",
                hint="a script stands alone: it reads no files, packages or addresses; put all it needs into its text",
            )
        if not names_invoke(script):
            raise mistake("has no function invoke", hint="write function invoke(row) { return row; }")
        return script

    @property
    def is_typescript(self) -> bool:
        """Whether the script is TypeScript."""
        return self.language in ("typescript", "ts")
