"""What is wrong in the file of a pipeline: every mistake with its place and a hint, and the one error that has them all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import ConfigError
from penstock.pipeline.spec import Place

MOST_PROBLEMS = 100
"""So many mistakes are enough for a reader, and the search for near names takes time."""
MOST_SHOWN = 50
"""How many mistakes the text of an error shows; `problems` has all of them."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake, or a warning."""

    place: Place
    text: str
    hint: str
    code: str
    is_warning: bool = False

    def __str__(self) -> str:
        return f"{self.place}: {self.text}\n    hint: {self.hint}"


class PipelineError(ConfigError):
    """A file that is no pipeline, with every mistake in it, in the order of the file."""

    default_code = "PIPELINE"
    problems: tuple[Problem, ...] = ()

    @classmethod
    def of(cls, problems: Iterable[Problem]) -> PipelineError:
        """Return the error of one mistake or more."""
        ordered = tuple(in_file_order(problems))
        first, codes = ordered[0], {problem.code for problem in ordered}
        code = first.code if len(codes) == 1 else cls.default_code
        if len(ordered) == 1:
            error = cls(first.text, code=code, where=str(first.place), hint=first.hint)
        else:
            lines = [f"{len(ordered)} mistakes in '{Path(first.place.path).name}'"]
            lines += [f"  {problem}" for problem in ordered[:MOST_SHOWN]]
            if len(ordered) > MOST_SHOWN:
                lines.append(f"  and {len(ordered) - MOST_SHOWN} more")
            error = cls("\n".join(lines), code=code)
        error.problems = ordered
        return error


def in_file_order(problems: Iterable[Problem]) -> list[Problem]:
    """The problems by their places, each once."""
    return sorted(dict.fromkeys(problems), key=lambda problem: problem.place)
