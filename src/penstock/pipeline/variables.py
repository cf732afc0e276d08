"""Variables of the environment in a file: `${VAR}`, `${VAR:-default}`, and `$${` for the text `${`.

What a variable gave is a secret: it is shown nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from penstock.errors import nearest
from penstock.pipeline.problem import MOST_PROBLEMS, Problem
from penstock.pipeline.secret import SHORT, hide, secrets_in
from penstock.pipeline.yaml_tree import MappingTree, SequenceTree, Tree, YamlScalar

SCRIPT_FIELD = "script"
"""A field in which only names in capitals are variables: `${total}` is a template literal of JavaScript there."""

DEEPEST = 8
"""How deep variables may be nested in the defaults of each other."""
MOST_SUGGESTED = 20
"""How many missing variables get a suggestion: the search takes time."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_IN_SCRIPT = re.compile(r"\$\{[A-Z_][A-Z0-9_]*(?::-|\})")


@dataclass(slots=True)
class Filling:
    """Fills variables into a tree, and notes what they gave and what is missing."""

    variables: Mapping[str, str]
    secrets: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)
    values_of: dict[str, str] = field(default_factory=dict)
    """The variables that have been filled in, with their values."""
    _done: dict[tuple[int, bool], Tree] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)
    """Of the variables in the text that is filled in now."""

    def tree(self, tree: Tree, *, in_script: bool = False) -> Tree:
        """Return a tree with its variables filled in."""
        cached = self._done.get((id(tree), in_script))
        if cached is not None:
            return cached
        match tree:
            case MappingTree():
                entries = tuple(
                    (self.scalar(key), self.tree(value, in_script=key.text == SCRIPT_FIELD))
                    for key, value in tree.entries
                )
                self._refuse_twice(entries)
                filled: Tree = MappingTree(entries, tree.place)
            case SequenceTree():
                filled = SequenceTree(tuple(self.tree(item) for item in tree.items), tree.place)
            case YamlScalar():
                filled = self.scalar(tree, in_script=in_script)
        self._done[id(tree), in_script] = filled
        return filled

    def scalar(self, scalar: YamlScalar, *, in_script: bool = False) -> YamlScalar:
        """Return a text with its variables filled in."""
        if "${" not in scalar.text:
            return scalar
        self._names.clear()
        earlier = len(self.problems)
        text = self._text(scalar.text, scalar, 0, 0, in_script=in_script)
        if len(self.problems) > earlier:
            scalar = replace(scalar, is_unfilled=True)
        if text == scalar.text:
            return scalar
        names = frozenset(self._names)
        filled = frozenset(self.values_of[name] for name in names)
        return replace(scalar, text=text, raw=scalar.text, filled=filled, variables=names)

    def marked(self, tree: Tree, before: Tree) -> Tree:
        """Return a tree that was made from another one, with what variables gave in its new texts noted."""
        return tree if tree is before else self._marked(tree, {id(part) for part in _scalars(before)})

    def _text(self, text: str, scalar: YamlScalar, shift: int, depth: int, *, in_script: bool) -> str:
        parts = []
        at = 0
        while (start := text.find("${", at)) >= 0:
            parts.append(text[at:start])
            at = start + 2
            if text.endswith("$", 0, start) and parts[-1]:
                # The dollar before it takes the meaning away, and goes.
                parts[-1] = parts[-1][:-1] + "${"
                continue
            if in_script and not _IN_SCRIPT.match(text, start):
                parts.append("${")
                continue
            end = _end(text, start)
            if end is None:
                self._refuse(
                    scalar, shift + start, "'${' has no '}'", "close it, or write $${ for the text ${"
                )
                parts.append("${")
                break
            value = self._value(text[at:end], scalar, shift + start, depth, in_script=in_script)
            parts.append(text[start : end + 1] if value is None else value)
            at = end + 1
        parts.append(text[at:])
        return "".join(parts)

    def _value(
        self, inside: str, scalar: YamlScalar, offset: int, depth: int, *, in_script: bool
    ) -> str | None:
        """The value of a variable; None, and a problem, when it has none."""
        name, colon, default = inside.partition(":-")
        if not _NAME.fullmatch(name):
            shown = f"${{{inside[:40]}}}"
            hint = "write ${NAME} or ${NAME:-default}, and $${ for the text ${"
            self._refuse(scalar, offset, f"'{shown}' is not a variable", hint)
            return None
        value = self.variables.get(name)
        if value or (value is not None and not colon):
            self.secrets.update(secrets_in(value))
            self.values_of[name] = value
            self._names.add(name)
            return value
        if colon and depth < DEEPEST:
            return self._text(default, scalar, offset + len(name) + 4, depth + 1, in_script=in_script)
        if colon:
            self._refuse(scalar, offset, f"more than {DEEPEST} variables in each other", "use fewer of them")
            return None
        near = None
        if len(self.problems) < MOST_SUGGESTED:
            near = nearest(name, (other for other in self.variables if len(other) > 2))
        hint = f"set {name}, or write ${{{name}:-default}}; $${{ is the text ${{"
        hint = hint if near is None else f"did you mean {near}? {hint}"
        self._refuse(scalar, offset, f"the variable {name} is not set", hint)
        return None

    def _marked(self, tree: Tree, old_scalars: Collection[int]) -> Tree:
        match tree:
            case MappingTree():
                entries = ((key, self._marked(value, old_scalars)) for key, value in tree.entries)
                return replace(tree, entries=tuple(entries))
            case SequenceTree():
                return replace(tree, items=tuple(self._marked(item, old_scalars) for item in tree.items))
        values = frozenset(secret for secret in self.secrets if len(secret) >= SHORT and secret in tree.text)
        if id(tree) in old_scalars or not values:
            return tree
        # Where the new text came from is not known, so it is shown without what variables gave.
        names = frozenset(name for name, value in self.values_of.items() if value in values)
        return replace(tree, filled=values, raw=hide(tree.text, values), variables=names)

    def _refuse_twice(self, entries: Iterable[tuple[YamlScalar, Tree]]) -> None:
        """Names that variables have made the same; without them the file was refused."""
        first: dict[str, YamlScalar] = {}
        for key, _ in entries:
            other = first.setdefault(key.text, key)
            if other is not key:
                text = f"'{key.written}' is the same name as '{other.written}' in line {other.place.line}"
                hint = "remove one of them, or give its variable another value"
                self._refuse(key, 0, text, hint)

    def _refuse(self, scalar: YamlScalar, offset: int, text: str, hint: str) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(Problem(scalar.place_at(offset), text, hint, "PIPELINE_VARIABLE"))


def _scalars(tree: Tree) -> Iterator[YamlScalar]:
    match tree:
        case MappingTree():
            for key, value in tree.entries:
                yield key
                yield from _scalars(value)
        case SequenceTree():
            for item in tree.items:
                yield from _scalars(item)
        case YamlScalar():
            yield tree


def _end(text: str, start: int) -> int | None:
    """The index of the brace that closes the one of `${`, which may have others in its default."""
    depth = 0
    for index in range(start + 1, len(text)):
        depth += {"{": 1, "}": -1}.get(text[index], 0)
        if depth == 0:
            return index
    return None
