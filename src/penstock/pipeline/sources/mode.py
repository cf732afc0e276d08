"""Whether a source comes to an end: `mode: bounded`, or `mode: {type: continuous, poll_interval: 5s}`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import Field, model_validator

from penstock.options import Duration, Options, mistake

if TYPE_CHECKING:
    from typing import Self

    from pydantic import GetJsonSchemaHandler
    from pydantic_core import CoreSchema

POLL_INTERVAL_MS = 5_000


Ending = Literal["bounded", "continuous"]


class _OrWord:
    """Says in the JSON schema that a mode may be its `type` alone."""

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> dict[str, Any]:
        return {"anyOf": [{"type": "string", "enum": list(get_args(Ending))}, handler(core_schema)]}


class Mode(Options):
    """Whether a source comes to an end."""

    type: Ending = Field(description="`bounded`: what is there; `continuous`: also what comes later")
    poll_interval: Duration | None = Field(
        None, description="how often a continuous source looks for what is new; default `5s`"
    )

    @model_validator(mode="before")
    @classmethod
    def _of_a_word(cls, value: Any) -> Any:
        return {"type": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _polls(self) -> Self:
        if self.type == "bounded" and self.poll_interval is not None:
            raise mistake(
                "poll_interval is for continuous sources", hint="leave it out, or say type: continuous"
            )
        return self

    @property
    def poll_interval_ms(self) -> int | None:
        """How often to look for what is new; None for a source that ends."""
        if self.type == "bounded":
            return None
        return POLL_INTERVAL_MS if self.poll_interval is None else self.poll_interval


WordOrMode = Annotated[Mode, _OrWord()]
"""A mode as a source has it."""
