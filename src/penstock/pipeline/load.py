"""From a file to a pipeline: read, parse, fill in variables, let preprocessors change it, check every field, then the references
between nodes.

    spec = load("pipeline.yaml")

One error carries every mistake; `check` returns them instead, with the warnings.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from penstock import config
from penstock.config import Settings
from penstock.errors import ConfigError, suggest
from penstock.pipeline.preprocess import rewritten
from penstock.pipeline.problem import PipelineError, Problem, in_file_order
from penstock.pipeline.references import check_references
from penstock.pipeline.secret import credential, hide, model_secrets, secrets_in
from penstock.pipeline.spec import PipelineSpec
from penstock.pipeline.stored_secret import check_stored_secrets
from penstock.pipeline.validation import Validation
from penstock.pipeline.variables import Filling
from penstock.pipeline.yaml_tree import LARGEST_FILE, Tree, decode, parse

SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Checked:
    """What a file is: a pipeline, unless it has mistakes."""

    problems: tuple[Problem, ...]
    """Mistakes and warnings, in the order of the file."""
    pipeline: PipelineSpec | None = None
    tree: Tree | None = field(default=None, repr=False)
    """The file, with its variables filled in; what is secret in it is not marked."""

    @property
    def mistakes(self) -> tuple[Problem, ...]:
        """What must be mended."""
        return tuple(problem for problem in self.problems if not problem.is_warning)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """What runs, and is perhaps not meant so."""
        return tuple(problem for problem in self.problems if problem.is_warning)

    @property
    def spec(self) -> PipelineSpec:
        """The pipeline; raises one error with all mistakes when there are some."""
        if self.pipeline is None:
            raise PipelineError.of(self.mistakes)
        return self.pipeline


def load(
    path: str | os.PathLike[str],
    *,
    settings: Settings | None = None,
    environ: Mapping[str, str] | None = None,
) -> PipelineSpec:
    """Return the pipeline of a file; raises one error with every mistake in it."""
    return check(path, settings=settings, environ=environ).spec


def check(
    path: str | os.PathLike[str],
    *,
    settings: Settings | None = None,
    environ: Mapping[str, str] | None = None,
) -> Checked:
    """Return the pipeline of a file, or what is wrong with it; raises only when there is no such file."""
    name = os.fspath(path)
    text = decode(_read(Path(name)), name)
    if isinstance(text, Problem):
        return Checked((text,))
    return check_text(text, name, settings=settings, environ=environ)


def check_text(
    text: str,
    path: str = "pipeline.yaml",
    *,
    settings: Settings | None = None,
    environ: Mapping[str, str] | None = None,
) -> Checked:
    """Return the pipeline that a text is, or what is wrong with it.

    >>> checked = check_text("sources: {a: {type: rate}}", environ={})
    >>> print(checked.mistakes[0])
    pipeline.yaml:1:1: the pipeline has no sinks
        hint: add sinks: with at least one, as in out: {type: print, from: orders}
    """
    tree, problems = parse(text, path)
    if tree is None:
        return Checked(tuple(in_file_order(problems)))
    filling = Filling(config.variables() if environ is None else environ)
    tree = filling.tree(tree)
    problems += filling.problems
    if not problems:
        before = tree
        tree, refused = rewritten(tree, path)
        tree = filling.marked(tree, before)
        if refused is not None:
            text, hint = (hide(words, filling.secrets) for words in (refused.text, refused.hint))
            return Checked((replace(refused, text=text, hint=hint),))
    settings = settings or config.load(environ)
    validation = Validation(path, settings, frozenset(filling.secrets | _passwords(settings)))
    validation.problems += problems
    spec = validation.spec(tree)
    spec = replace(spec, secrets=spec.secrets | _literal_secrets(spec, environ))
    check_references(spec, validation)
    check_stored_secrets(tree, spec, filling.values_of, validation)
    ordered = tuple(in_file_order(validation.problems))
    is_right = all(problem.is_warning for problem in ordered)
    return Checked(ordered, spec if is_right else None, tree)


def _literal_secrets(spec: PipelineSpec, environ: Mapping[str, str] | None) -> set[str]:
    """What is secret without being a variable, and what a node reads from the environment itself."""
    secrets: set[str] = set()
    for node in spec.nodes.values():
        secrets |= model_secrets(node.model)
        name = getattr(node.model, "secret_name", None)
        value = None if name is None else config.secret(name) if environ is None else environ.get(name)
        secrets |= credential(value) if value else set()
    return secrets


def _passwords(settings: Settings) -> set[str]:
    """What is secret in the addresses that the settings complete nodes with."""
    urls = (settings.postgres_url, settings.clickhouse_url, settings.schema_registry_url, settings.state)
    return {part for url in urls if url for part in secrets_in(url) if part != url}


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            # One byte more than a file may have shows that it is too large.
            return file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        names = _beside(path)
        hint = suggest(path.name, names, what="pipeline") if names else "penstock init writes a pipeline"
        raise ConfigError(f"no file '{path}'", code="PIPELINE_FILE", hint=hint) from None
    except IsADirectoryError:
        names = _beside(path / "x")
        hint = f"in it there is {', '.join(names[:12])}" if names else "name a file in YAML"
        raise ConfigError(f"'{path}' is a folder", code="PIPELINE_FILE", hint=hint) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"cannot read '{path}': {reason}",
            code="PIPELINE_FILE",
            hint="name a file in YAML that can be read",
        ) from error


def _beside(path: Path) -> list[str]:
    try:
        return sorted(other.name for other in path.parent.iterdir() if other.suffix in SUFFIXES)
    except OSError:
        return []
