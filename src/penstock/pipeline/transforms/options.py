"""From a node to the options of the transform that it is."""

from __future__ import annotations

from typing import Any

from penstock.options import Options, option_fields


def transform_options(node: Options, model: type[Options]) -> dict[str, Any]:
    """The values of a node for the fields of a transform's model, which it has too, by the names that users write."""
    aliases = {id(field): name for name, field in option_fields(model).items()}
    return {aliases[id(field)]: getattr(node, name) for name, field in model.model_fields.items()}
