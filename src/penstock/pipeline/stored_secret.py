"""Secrets in fields that are stored: refused, because the checkpoint or the state has such a field as it is.

Every variable is hidden where something is shown. A *secret* is a variable whose name says so, whose value is an
address with a password, or that stands in a field for secrets. It must not be stored either; and where rows are read
is part of how far they are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.backend.address import is_secret_name, passwords_in
from penstock.options import Options, aliases_of, models_in
from penstock.pipeline.node import Node
from penstock.pipeline.node_type import SECTIONS
from penstock.pipeline.nodes import SOURCE_NODES
from penstock.pipeline.secret import PLAIN_HEADERS, secrets_in_address
from penstock.pipeline.yaml_tree import MappingTree, SequenceTree, Tree, YamlScalar

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from penstock.pipeline.spec import PipelineSpec
    from penstock.pipeline.validation import Validation

STORED_PARTS = ("name", "checkpoint")
"""The parts of a file beside its nodes that the state has."""
CODE = "PIPELINE_SECRET"
_OF_A_PLACE = re.compile(
    r"(?i)(?:^|_)(?:topics?|tables?|path|folder|directory|dir|file|name|slot|schema|prefix|bucket|host|port|user)$"
)
"""The ends of names of variables that say where something is, and are not secret whatever else they say:
`PASSWORD_RESETS_TOPIC`."""


@dataclass(frozen=True, slots=True)
class Use:
    """Where variables are filled in."""

    scalar: YamlScalar
    what: str
    """In words, for a field that is stored; empty for others."""
    is_secret: bool = False
    """Whether it is a field for secrets."""


def check_stored_secrets(
    tree: Tree, spec: PipelineSpec, variables: Mapping[str, str], validation: Validation
) -> None:
    """Report every secret in a field that is stored; `variables` are those of the file, with their values."""
    uses = list(_uses(tree, spec)) if variables else []
    secrets = _secret_names(uses, variables)
    for use in uses:
        for name in sorted(use.scalar.variables & secrets if use.what else ()):
            text = f"{use.what} has the secret ${{{name}}}, which would stand in the state of the pipeline as it is"
            hint = f"write it without a secret; if {name} is none, give the variable a name that does not say so, and use it in no field for secrets"
            validation.report(use.scalar.place, text, hint, CODE)


def _secret_names(uses: Iterable[Use], variables: Mapping[str, str]) -> frozenset[str]:
    """The variables that are secrets."""
    names = {
        name
        for name, value in variables.items()
        if (is_secret_name(name) and not _OF_A_PLACE.search(name)) or passwords_in(value)
    }
    for use in uses:
        if not use.is_secret:
            continue
        text = use.scalar.text
        # Of an address, only what is secret in it.
        within = secrets_in_address(text) if "://" in text else None
        names |= {name for name in use.scalar.variables if within is None or variables.get(name) in within}
    return frozenset(names)


def _uses(tree: Tree, spec: PipelineSpec) -> Iterator[Use]:
    """Where a file has variables."""
    if not isinstance(tree, MappingTree):
        return
    for part in STORED_PARTS:
        value = tree.get(part)
        if isinstance(value, YamlScalar):
            yield Use(value, f"the {part} of the pipeline")
    for section in SECTIONS:
        nodes = tree.get(section)
        for key, value in nodes.entries if isinstance(nodes, MappingTree) else ():
            yield Use(key, "the name of a node")
            node = spec.nodes.get(key.text)
            if node is not None:
                owner = f"the {node.kind} '{key.written}'"
                yield from _of_value(value, type(node.model), owner=owner, field="")


def _of_value(
    tree: Tree,
    model: type[Options] | None,
    *,
    owner: str,
    field: str,
    stored: bool = False,
    secret: bool = False,
) -> Iterator[Use]:
    """The uses in a value, which is one of the model, if it has one; `field` is its path."""
    match tree:
        case YamlScalar():
            if tree.variables:
                yield Use(tree, f"'{field}' of {owner}" if stored else "", is_secret=secret)
        case SequenceTree():
            for item in tree.items:
                yield from _of_value(item, model, owner=owner, field=field, stored=stored, secret=secret)
        case MappingTree():
            part = tree.get("type")
            if field and isinstance(part, YamlScalar) and part.text in SOURCE_NODES.builtin:
                # A source within a source has secrets of its own, and is none.
                model, secret = SOURCE_NODES.load(part.text), False
            stored_fields = (
                model.stored_fields if model is not None and issubclass(model, Node) else frozenset[str]()
            )
            for key, value in tree.entries:
                info = None if model is None else _field(model, key.text)
                inner = () if info is None else models_in(info.annotation)
                is_plain = key.text.lower() in PLAIN_HEADERS
                yield from _of_value(
                    value,
                    inner[0] if inner else None,
                    owner=owner,
                    field=f"{field}.{key.text}" if field else key.text,
                    stored=stored or key.text in stored_fields,
                    secret=not is_plain
                    and (secret or is_secret_name(key.text) or (info is not None and not info.repr)),
                )


def _field(model: type[Options], written: str) -> FieldInfo | None:
    """The field of a model by the name that the user wrote."""
    for name, field in model.model_fields.items():
        alias = field.validation_alias
        if written in aliases_of(name, field) or written == alias:
            return field
    return None
