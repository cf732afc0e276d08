"""From a node to the options of the connector that it is."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from penstock.options import Options, option_fields
from penstock.pipeline.node import SinkNode


def connector_options(node: Options, model: type[Options]) -> dict[str, Any]:
    """The values of a node for the fields of a connector's model, which it has too, by the names that users write."""
    aliases = {id(field): name for name, field in option_fields(model).items()}
    values = {aliases[id(field)]: getattr(node, name) for name, field in model.model_fields.items()}
    return {**values, **(node.model_extra or {})}


class TableNode(SinkNode):
    """A sink that is a table, whose rows replace and delete each other by the key or are only added."""

    output_mode: Literal["update", "append"] = Field(
        "update",
        description="`update`: the last row of each key stays, and rows that are deleted go; `append`: "
        "every row is added, and one that "
        "updates or deletes is refused",
    )

    @property
    def is_keyed(self) -> bool:
        return self.output_mode == "update"
