"""From the tree of a file to the nodes of a pipeline: every field is checked by its model, and every mistake gets its place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.config import Settings
from penstock.errors import PenstockError, nearest, suggest
from penstock.options import Mistake, Model, Options, OptionsOwner, check_options, option_fields
from penstock.pipeline.fields import PipelineFields, TestFields
from penstock.pipeline.node import RowErrors, RowTransformNode, SourceNode
from penstock.pipeline.node_type import SECTIONS, model_of, type_names
from penstock.pipeline.problem import MOST_PROBLEMS, Problem
from penstock.pipeline.secret import hide
from penstock.pipeline.spec import Kind, NodeSpec, PipelineSpec, Place, TestSpec
from penstock.pipeline.transforms.lookup import LookupNode
from penstock.pipeline.yaml_tree import (
    MappingTree,
    SequenceTree,
    Tree,
    YamlScalar,
    describe,
    filled_in,
    place_in,
    places,
    plain,
    value_in,
)

MOST_NODES = 1_000
NAME = re.compile(r"[^\W]([\w-]*[\w])?(\.[^\W]([\w-]*[\w])?)*")
NOTES = "x-"
"""What the names of parts begin with that are for anchors only."""
_WORD = re.compile(r"\w{4,}")
_LONG = re.compile(r"(?<=['\"])([^'\"\n]{60})[^'\"\n]{10,}(?=['\"])")


ROW_ERRORS = (
    "sql, script, handler, expect, lookup with `from`, plugins that transform, and the "
    "sinks postgres, postgres_aggregate, kafka, clickhouse and webhook can leave "
    "rows out; a row that fails anywhere else ends the pipeline: put an expect before it"
)
"""The hint for a node that does not know which of its rows has failed."""


@dataclass(frozen=True, slots=True)
class DeclaredNode:
    """A node as the file declares it, whether it is right or not."""

    kind: Kind
    name: str
    place: Place
    tree: Tree


@dataclass(slots=True)
class Validation:
    """What was read so far, and what is wrong with it."""

    path: str
    settings: Settings
    secrets: frozenset[str]
    problems: list[Problem] = field(default_factory=list)
    declared: dict[str, DeclaredNode] = field(default_factory=dict)
    """By their names in lower case."""
    nodes: dict[str, NodeSpec] = field(default_factory=dict)

    def spec(self, tree: Tree) -> PipelineSpec:
        """Return the pipeline with the nodes that fit their models; what does not is among the problems."""
        if not isinstance(tree, MappingTree):
            hint = "a pipeline has the parts name, sources, transforms and sinks"
            self.report(
                tree.place, f"a pipeline is a mapping, and this is {describe(tree)}", hint, "PIPELINE_FIELD"
            )
            return PipelineSpec("", self.path, {})
        self._parts(tree)
        for section, kind in SECTIONS.items():
            self._declare(tree, section, kind)
        for declared in self.declared.values():
            if len(self.problems) < MOST_PROBLEMS:
                self._node(declared)
        fields = self._fields(tree)
        tests = tuple(self._tests(tree.get("tests")))
        if fields is not None:
            self._check_trigger(fields, tree)
        how = {"trigger": fields.trigger, "checkpoint": fields.checkpoint} if fields else {}
        return PipelineSpec(
            name=(fields and fields.name) or Path(self.path).stem or "pipeline",
            path=self.path,
            nodes=self.nodes,
            state=fields.state if fields else None,
            tests=tests,
            settings={name: value for name, value in how.items() if value is not None},
            secrets=self.secrets,
        )

    def report(self, place: Place, text: str, hint: str, code: str, *, is_warning: bool = False) -> None:
        """Note a problem, without the secrets in it."""
        shown = _cut(hide(text, self.secrets)), hide(hint, self.secrets)
        self.problems.append(Problem(place, *shown, code, is_warning))

    def _parts(self, tree: MappingTree) -> None:
        parts = [*option_fields(PipelineFields), *SECTIONS, "tests"]
        for key, _ in tree.entries:
            if len(self.problems) > MOST_PROBLEMS:
                return
            if key.text not in parts and not key.text.startswith(NOTES):
                hint = (
                    suggest(key.text, parts, what="part") + f"; names that begin with {NOTES} are for anchors"
                )
                self.report(key.place, f"a pipeline has no part '{key.text}'", hint, "PIPELINE_FIELD")

    def _fields(self, tree: MappingTree) -> PipelineFields | None:
        own = option_fields(PipelineFields)
        entries = tuple((key, value) for key, value in tree.entries if key.text in own)
        return self._checked(
            PipelineFields, MappingTree(entries, tree.place), OptionsOwner("the pipeline"), tree.place
        )

    def _check_trigger(self, fields: PipelineFields, tree: MappingTree) -> None:
        key = tree.key("trigger")
        sources = [node.model for node in self.nodes.values() if isinstance(node.model, SourceNode)]
        ends = bool(sources) and all(model.is_bounded for model in sources)
        if key is not None and isinstance(fields.trigger, int) and ends:
            text = "trigger has no use: all sources come to an end, and are read at once"
            hint = "remove it, or let a source go on: mode: {type: continuous}"
            self.report(key.place, text, hint, "PIPELINE_UNUSED", is_warning=True)

    def _declare(self, tree: MappingTree, section: str, kind: Kind) -> None:
        nodes = tree.get(section)
        key = tree.key(section)
        is_empty = nodes is None or (isinstance(nodes, YamlScalar) and nodes.value is None)
        if nodes is not None and not is_empty and not isinstance(nodes, MappingTree):
            text = f"'{section}' must be a mapping from names to nodes, and is {describe(nodes)}"
            hint = f"write {section}: with lines as my_{kind}: {{type: ...}} below it"
            self.report(nodes.place, text, hint, "PIPELINE_FIELD")
        elif kind != "transform" and (is_empty or (isinstance(nodes, MappingTree) and not nodes.entries)):
            place = key.place if key is not None else tree.place
            hint = {
                "source": "add sources: with at least one, as in orders: {type: file, path: data/}",
                "sink": "add sinks: with at least one, as in out: {type: print, from: orders}",
            }[kind]
            self.report(place, f"the pipeline has no {section}", hint, "PIPELINE_EMPTY")
        if not isinstance(nodes, MappingTree):
            return
        for name, node in nodes.entries:
            self._declare_node(DeclaredNode(kind, name.text, name.place, node))

    def _declare_node(self, node: DeclaredNode) -> None:
        other = self.declared.get(node.name.lower())
        if len(self.declared) == MOST_NODES:
            text = f"more than {MOST_NODES:,} nodes"
            self.report(node.place, text, "make several pipelines of it", "PIPELINE_NAME")
            # The others are not looked at.
            self.declared[""] = node
        if len(self.declared) > MOST_NODES:
            return
        if not NAME.fullmatch(node.name) or len(node.name) > 100:
            text = f"'{node.name}' cannot be the name of a node"
            hint = "use up to 100 letters, digits, _ and -, with dots between the parts of a name"
            self.report(node.place, text, hint, "PIPELINE_NAME")
        if other is not None:
            text = (
                f"the {node.kind} '{node.name}' has the name of the {other.kind} in line {other.place.line}"
            )
            hint = "give one of them another name; large and small letters are the same"
            self.report(node.place, text, hint, "PIPELINE_NAME")
            return
        self.declared[node.name.lower()] = node

    def _node(self, node: DeclaredNode) -> None:
        what = f"the {node.kind} '{node.name}'"
        if not isinstance(node.tree, MappingTree):
            text = f"{what} must be a mapping of its fields, and is {describe(node.tree)}"
            hint = f"write {node.name}: {{type: ...}}, with a type of: {', '.join(type_names(node.kind))}"
            self.report(node.place, text, hint, "PIPELINE_FIELD")
            return
        written = node.tree.get("type")
        if not isinstance(written, YamlScalar) or written.value is None:
            text = f"{what} needs a type" if written is None else f"the type of {what} is {describe(written)}"
            place = node.place if written is None else written.place
            self.report(
                place, text, f"add type: with one of: {', '.join(type_names(node.kind))}", "PIPELINE_TYPE"
            )
            return
        values = plain(node.tree)
        try:
            model = model_of(node.kind, written.text, values)
        except PenstockError as error:
            if not written.is_unfilled:
                self.report(written.place, f"{what}: {error.message}", error.hint or "", "PIPELINE_TYPE")
            return
        except Exception as error:
            text = f"{what}: its type '{written.text}' cannot be loaded: {type(error).__name__}: {error}"
            self.report(written.place, text, "install its package again, with what it needs", "PIPELINE_TYPE")
            return
        checked = self._checked(model, node.tree, OptionsOwner(what, syntax="{name}: {value}"), node.place)
        if checked is not None:
            field_places = dict(places(node.tree))
            secrets = filled_in(node.tree)
            self.nodes[node.name] = NodeSpec(node.kind, node.name, checked, node.place, field_places, secrets)

    def _checked(
        self, model: type[Model], tree: MappingTree, owner: OptionsOwner, place: Place
    ) -> Model | None:
        """Return what a model makes of a tree, or report all that is wrong."""
        try:
            read, mistakes = check_options(model, plain(tree), owner=owner, settings=self.settings)
        except PenstockError as error:
            self.report(
                place, f"{owner.name}: {error.message}", error.hint or "see its fields", "PIPELINE_FIELD"
            )
            return None
        except Exception as error:
            text = f"{owner.name} cannot be checked: {type(error).__name__}: {error}"
            self.report(place, text, "its own check of its fields fails", "PIPELINE_FIELD")
            return None
        if mistakes:
            field_places = dict(places(tree))
            missing = [str(mistake.path[-1]) for mistake in mistakes if mistake.kind == "MISSING"]
            for mistake in mistakes:
                value = value_in(tree, mistake.path)
                # Of a text without its variable, that it has none is the mistake.
                if mistake.path and isinstance(value, YamlScalar) and value.is_unfilled:
                    continue
                place_of_field = field_places.get(mistake.path, place)
                self._report_mistake(mistake, model, tree, owner, place_of_field, missing=missing)
        return read

    def _report_mistake(
        self,
        mistake: Mistake,
        model: type[Options],
        tree: MappingTree,
        owner: OptionsOwner,
        place: Place,
        *,
        missing: Sequence[str],
    ) -> None:
        """Report what is wrong with a field; `place` is that of the field, or of the value that lacks it. `missing`
        are the fields that are."""
        dotted = ".".join(map(str, mistake.path))
        if mistake.kind == "UNKNOWN":
            text = f"{owner.name} has no field '{dotted}'"
            name = str(mistake.path[-1])
            hint = suggest(name, mistake.choices, what="field") if mistake.choices else "remove it"
            near = nearest(name, [field for field in missing if field in mistake.choices])
            if near is not None:
                hint = f"did you mean '{near}'? {suggest('', mistake.choices, what='field')}"
            if " " in str(mistake.path[-1]):
                hint = "within braces, put a text with commas in quotes"
            elif mistake.path[-1] in option_fields(RowErrors):
                hint = ROW_ERRORS
        elif mistake.kind == "MISSING":
            text = f"{owner.name} needs '{dotted}'"
            hint = mistake.hint or f"add {mistake.path[-1]}: ..."
            place = place_in(tree, mistake.path) if len(mistake.path) > 1 else place
        else:
            text = f"{owner.name}: {mistake.text}"
            described = option_fields(model).get(mistake.name)
            meaning = described.description if described is not None else None
            hint = mistake.hint or (
                f"{mistake.name}: {meaning}"
                if meaning
                else f"its fields are {', '.join(option_fields(model))}"
            )
            value = value_in(tree, mistake.path)
            place = value.place if mistake.path else place
            # A model may repeat a part of what a variable gave, as the first word of a query.
            words = frozenset(word for filled in filled_in(value) for word in _WORD.findall(filled))
            text, hint = hide(text, words), hide(hint, words)
        self.report(place, text, hint, mistake.code or "PIPELINE_FIELD")

    def _tests(self, tree: Tree | None) -> Iterator[TestSpec]:
        if tree is None or (isinstance(tree, YamlScalar) and tree.value is None):
            return
        if not isinstance(tree, SequenceTree):
            text = f"'tests' must be a list, and is {describe(tree)}"
            self.report(tree.place, text, "write each test behind a dash: - name: ...", "PIPELINE_TEST")
            return
        for number, item in enumerate(tree.items, 1):
            if not isinstance(item, MappingTree):
                text = f"a test must be a mapping, and this is {describe(item)}"
                self.report(item.place, text, "a test has the fields name, given and expect", "PIPELINE_TEST")
                continue
            name = item.get("name")
            owner = OptionsOwner(
                f"the test '{name.text}'" if isinstance(name, YamlScalar) else f"test {number}",
                syntax="{name}: {value}",
            )
            fields = self._checked(TestFields, item, owner, item.place)
            if fields is not None:
                input_rows = self._named(fields.given, item, "given", owner, ("source",))
                expected_rows = self._named(
                    fields.expect, item, "expect", owner, ("source", "transform", "sink")
                )
                yield TestSpec(fields.name, input_rows, expected_rows, item.place)

    def _may_stand(self, node: DeclaredNode, kinds: tuple[Kind, ...]) -> bool:
        """Whether a test may name a node; rows may be given to transforms that ask others, too."""
        spec = self.nodes.get(node.name)
        is_unknown = spec is None and node.kind == "transform"  # and its own mistakes are reported already
        asks = spec is not None and isinstance(spec.model, RowTransformNode | LookupNode)
        return node.kind in kinds or is_unknown or asks

    def _named(
        self,
        rows: Mapping[str, Any],
        test: MappingTree,
        part: str,
        owner: OptionsOwner,
        kinds: tuple[Kind, ...],
    ) -> dict[str, Any]:
        """Return rows by the names of nodes as declared, and report those that are none."""
        result = {}
        names = [node.name for node in self.declared.values() if self._may_stand(node, kinds)]
        field_places = dict(places(test))
        for name, values in rows.items():
            if len(self.problems) > MOST_PROBLEMS:
                break
            node = self.declared.get(name.lower())
            if node is None or not self._may_stand(node, kinds):
                what = "node" if "sink" in kinds else "source"
                text = f"{owner.name}: there is no {what} '{name}'"
                self.report(field_places[part, name], text, suggest(name, names, what=what), "PIPELINE_TEST")
            elif node.name in self.nodes and self.nodes[node.name].type == "dynamic_table":
                text = f"{owner.name}: the dynamic table '{node.name}' gives no rows that could be compared"
                hint = "expect the rows of a sql node that asks it"
                self.report(field_places[part, name], text, hint, "PIPELINE_TEST")
            else:
                result[node.name] = values
        return result


def _cut(text: str) -> str:
    """A text with what it quotes cut where that is long, once nothing in it is secret any more."""
    return _LONG.sub(r"\1...", text)
