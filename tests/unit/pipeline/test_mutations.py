"""Files with random mistakes are pipelines, or have problems with places and hints; nothing raises anything else."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from growth import growth, least_seconds
from penstock.cli.main import main
from penstock.errors import ConfigError
from pipeline_text import check, check_text
from seed import FRESH

ROOT = Path(__file__).parents[3]
PIPELINES = sorted((ROOT / "examples" / "pipelines").glob("*.yaml"))
NODES = sorted((ROOT / "examples" / "nodes").glob("*.yaml"))
EACH = {"pipelines": 40, "nodes": 8}
BY_COMMAND = 10
"""Every so many files are given to the commands, too."""
NEAR = 2
"""So many lines from a mutated line is a place that helps."""
BY_TIME = 8
"""Every so many files are checked again, to see how long that takes."""
MOST_TIMES = 50
"""How many times as long as the file without mistakes one may take; the usual is about as long."""
ENVIRON = {
    "PENSTOCK_KAFKA_BOOTSTRAP_SERVERS": "broker:9092",
    "PENSTOCK_POSTGRES_URL": "postgresql://ann:geheim@db/x",
    "PENSTOCK_CLICKHOUSE_URL": "http://click:8123",
}


def _line(lines: list[str], chance: random.Random) -> int:
    return chance.randrange(len(lines))


def delete(lines: list[str], chance: random.Random) -> None:
    del lines[_line(lines, chance)]


def duplicate(lines: list[str], chance: random.Random) -> None:
    at = _line(lines, chance)
    lines.insert(at, lines[at])


def swap(lines: list[str], chance: random.Random) -> None:
    one, other = _line(lines, chance), _line(lines, chance)
    lines[one], lines[other] = lines[other], lines[one]


def rename(lines: list[str], chance: random.Random) -> None:
    at = _line(lines, chance)
    words = [word for word in lines[at].replace("{", " ").replace(",", " ").split() if word.endswith(":")]
    if words:
        word = chance.choice(words)
        lines[at] = lines[at].replace(word, word[1:-1] + chance.choice("xyz_") + ":", 1)


def retype(lines: list[str], chance: random.Random) -> None:
    at = _line(lines, chance)
    key, colon, _ = lines[at].partition(": ")
    if colon:
        values = [
            "5",
            "[1, 2]",
            "{a: b}",
            "true",
            "null",
            "''",
            "-1",
            "!!binary aGk=",
            "2026-01-01",
            ".nan",
            '"\\x00"',
        ]
        lines[at] = f"{key}: {chance.choice(values)}"


def indent(lines: list[str], chance: random.Random) -> None:
    at = _line(lines, chance)
    lines[at] = chance.choice([" ", "  ", "\t", "   "]) + lines[at]


def dedent(lines: list[str], chance: random.Random) -> None:
    at = _line(lines, chance)
    lines[at] = lines[at].removeprefix(chance.choice([" ", "  ", "    "]))


def truncate(lines: list[str], chance: random.Random) -> None:
    at = _line(lines, chance)
    lines[at] = lines[at][: chance.randrange(len(lines[at]) + 1)]
    del lines[at + 1 :]


def unbalance(lines: list[str], chance: random.Random) -> None:
    at = _line(lines, chance)
    column = chance.randrange(len(lines[at]) + 1)
    lines[at] = lines[at][:column] + chance.choice("{}[]'\"`:,#&*!|>%@-?") + lines[at][column:]


def anchor(lines: list[str], chance: random.Random) -> None:
    at = _line(lines, chance)
    key, colon, value = lines[at].partition(":")
    if colon:
        lines[at] = f"{key}: {chance.choice(['&a', '*a', '&a *a', '&a {b: *a}', '<<: *a'])}{value}"


def variable(lines: list[str], chance: random.Random) -> None:
    at = _line(lines, chance)
    column = chance.randrange(len(lines[at]) + 1)
    lines[at] = (
        lines[at][:column]
        + chance.choice(["${X}", "${", "$${", "${:-}", "${X:-y}", "${a b}"])
        + lines[at][column:]
    )


def scramble(lines: list[str], chance: random.Random) -> None:
    at = _line(lines, chance)
    column = chance.randrange(len(lines[at]) + 1)
    lines[at] = (
        lines[at][:column]
        + chance.choice(["\x00", "\ufeff", "\u2028", "é", "\U0001f600", "\x1b", "\r"])
        + lines[at][column + 1 :]
    )


def second(lines: list[str], chance: random.Random) -> None:
    lines.insert(_line(lines, chance), chance.choice(["---", "...", "%YAML 1.1"]))


MUTATORS: list[Callable[[list[str], random.Random], None]] = [
    delete, duplicate, swap, rename, retype, indent, dedent, truncate, unbalance, anchor, variable, scramble, second,
]  # fmt: skip


@pytest.mark.parametrize("path", [*PIPELINES, *NODES], ids=lambda path: path.stem)
def test_mutated_files(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    lines = path.read_text(encoding="utf-8").splitlines()
    wrong, each = 0, EACH[path.parent.name]
    usual = least_seconds(partial(check, path, environ=ENVIRON))
    for number in range(each):
        seed = f"{path.stem} {number} {FRESH}"
        chance = random.Random(seed)
        mutated = list(lines)
        for mutate in chance.choices(MUTATORS, k=chance.choice([1, 1, 1, 2, 4])):
            if mutated:
                mutate(mutated, chance)
        file = tmp_path / f"{number}.yaml"
        file.write_bytes("\n".join(mutated).encode("utf-8", "surrogatepass"))
        result = check(file, environ=ENVIRON)
        if number % BY_TIME == 0:
            assert least_seconds(partial(check, file, environ=ENVIRON)) < MOST_TIMES * usual, seed
        count = len(mutated) + 1
        for problem in result.problems:
            assert problem.text, seed
            assert problem.hint, (seed, problem)
            assert problem.code.isupper(), seed
            assert "geheim" not in str(problem), seed
            assert 1 <= problem.place.line <= count + 1, (seed, problem)
            assert problem.place.column >= 1, seed
        if result.mistakes:
            wrong += 1
            with pytest.raises(ConfigError) as caught:
                _ = result.spec
            assert caught.value.code
        else:
            assert result.spec.nodes
        if number % BY_COMMAND == 0:
            for words in (["validate"], ["validate", "--output", "json"], ["echo"], ["graph"]):
                code = main([words[0], str(file), *words[1:]])
                out, err = capsys.readouterr()
                assert code in ((2,) if result.mistakes else (0,)), (seed, words)
                assert "Traceback" not in out + err, (seed, words)
                assert "geheim" not in out + err, (seed, words)
    assert wrong > each / 4 or path in NODES  # of so few, none may be wrong


@pytest.mark.parametrize("mutate", [rename, retype])
def test_a_problem_is_shown_where_it_is(mutate: Callable[[list[str], random.Random], None]) -> None:
    near = far = 0
    for path in [*PIPELINES, *NODES]:
        lines = path.read_text(encoding="utf-8").splitlines()
        for number in range(5):
            mutated = list(lines)
            mutate(mutated, random.Random(f"{path.stem} {number}"))
            changed = [
                at for at, pair in enumerate(zip(lines, mutated, strict=True), 1) if len(set(pair)) > 1
            ]
            problems = check_text("\n".join(mutated), str(path), environ=ENVIRON).problems
            if changed and problems:
                is_near = any(abs(problem.place.line - changed[0]) <= NEAR for problem in problems)
                near, far = near + is_near, far + (not is_near)
    # What reads a node whose name has changed is the place then, and may be further away.
    assert near > 4 * far, (near, far)


@pytest.mark.parametrize("size", [1, 100, 10_000])
def test_random_bytes(tmp_path: Path, size: int) -> None:
    for seed in range(20):
        file = tmp_path / "p.yaml"
        file.write_bytes(random.Random(seed).randbytes(size))
        result = check(file, environ=ENVIRON)
        assert result.mistakes
        assert all(problem.hint for problem in result.mistakes)


def test_large_files_with_many_mistakes_take_no_long_time(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"

    def sources(count: int) -> None:
        lines = ["sources:", *(f"  s{n}: {{type: rat, pat: {n}}}" for n in range(count))]
        file.write_text("\n".join(lines), encoding="utf-8")
        assert 0 < len(check(file, environ=ENVIRON).mistakes) < 1000

    def transforms(count: int) -> None:
        lines = ["transforms:", *(f"  s{n}: {{type: sql, sql: SELECT * FROM t{n}}}" for n in range(count))]
        file.write_text("\n".join(lines), encoding="utf-8")
        assert 0 < len(check(file, environ=ENVIRON).mistakes) < 1000

    assert growth(sources, 600) < 24
    assert growth(transforms, 60) < 24
