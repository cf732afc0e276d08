"""The options of a query itself, which `writer.option(...)` takes beside those of its sink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from penstock.errors import ConfigError, nearest
from penstock.options import SEVERAL, Options, OptionsOwner, PathText, option_fields, read_options
from penstock.spark.reader import absolute

CHECKPOINT = "checkpoint.location"
_OTHER_NAMES = dict.fromkeys(("checkpoint_location", "checkpointLocation"), CHECKPOINT)
OWNER = OptionsOwner("the query")
Location = Annotated[PathText, AfterValidator(absolute)]


class QueryOptions(Options):
    """What a query keeps, what it begins with, and how it ends."""

    checkpoint: Location | None = Field(
        None,
        validation_alias=CHECKPOINT,
        description="the folder in which the query keeps how far it is, local or in an object store; "
        "another one is another query",
    )
    savepoint: Location | None = Field(
        None, description="the [savepoint](../how-to/checkpoints.md) that a new checkpoint begins with"
    )
    close_windows: bool = Field(
        False,
        description="with `Trigger.available_now()`: also emit the windows that are still open at the end",
    )


def query_option(name: str) -> str | None:
    """Return the option of the query that a name stands for; None when it is one of the sink.

    >>> query_option("checkpointLocation")
    'checkpoint.location'
    """
    name = _OTHER_NAMES.get(name, name)
    return name if name in option_fields(QueryOptions) else None


def read_query_options(options: Mapping[str, Any]) -> QueryOptions:
    """Return the options of a query, or raise one error with all mistakes."""
    return read_options(QueryOptions, options, owner=OWNER)


def both(of_query: ConfigError, of_sink: ConfigError) -> ConfigError:
    """One error with the mistakes in the options of a query and those in the options of its sink."""
    hints = [hint for hint in (of_query.hint, of_sink.hint) if hint]
    code = of_query.code if of_query.code == of_sink.code else SEVERAL
    return ConfigError(f"{of_query.message}; {of_sink.message}", code=code, hint="; ".join(hints) or None)


def with_near_options(error: ConfigError, names: Mapping[str, Any]) -> ConfigError:
    """Add to the error of a sink which of its names are nearly those of options of the query."""
    near = {
        name: nearest(name, option_fields(QueryOptions)) for name in names if f"'{name}'" in error.message
    }
    hints = [f"'{option}' is an option of the query" for option in near.values() if option is not None]
    if hints and error.code in {"STREAM_OPTION_UNKNOWN", SEVERAL}:
        error.hint = "; ".join([*hints, *([error.hint] if error.hint else [])])
    return error
