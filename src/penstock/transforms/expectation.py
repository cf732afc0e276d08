"""What rows should be like: the options of `expect`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from penstock.options import Options

Action = Literal["warn", "drop", "fail", "quarantine"]


class Expectation(Options):
    """A condition, and what happens to rows that do not meet it."""

    condition: str = Field(
        description="an expression of Spark SQL over the columns; a row for which it is false or NULL does not meet it"
    )
    action: Action = Field(
        "warn",
        description="`warn` counts the row and lets it pass, `drop` counts it and leaves it out, "
        "`quarantine` stores it with the dead "
        "letters, `fail` ends the pipeline before the epoch is written",
    )


class ExpectOptions(Options):
    """What rows should be like."""

    expectations: Annotated[dict[str, Expectation], Field(min_length=1)] = Field(
        description="expectations by their names"
    )
