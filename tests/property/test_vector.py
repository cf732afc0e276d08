"""Vector views against brute force, and scores that do not depend on the batch."""

from __future__ import annotations

import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.data.tick import Tick
from penstock.functions import evaluate
from penstock.functions.scalars.vectors import score_function
from penstock.plan.expression import Call, Column
from seed import SEED
from twin.rows import small_state
from twin.vector import Row, nearest, score

WIDTH = 3
TICK = Tick(1, 0)
NUMBERS = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 0.1]
METRICS = ("cosine", "l2", "dot")


def random_vector(rng: random.Random) -> list[float] | None:
    """Few numbers, so that ties are common; never zero in all dimensions."""
    if rng.random() < 0.15:
        return None
    vector = [rng.choice(NUMBERS) for _ in range(WIDTH)]
    return vector if any(vector) else [1.0, 0.0, 0.0]


def as_stored(vector: list[float] | None, element: str) -> list[float] | None:
    if vector is None or element == "DOUBLE":
        return vector
    return [float(np.float32(one)) for one in vector]


class History:
    """A flow of one vector view under random changes, beside the list of its rows."""

    def __init__(self, rng: random.Random, metric: str, path: Path) -> None:
        self.rng, self.path, self.metric = rng, path, metric
        self.element = rng.choice(["FLOAT", "DOUBLE"])
        self.keyed = rng.random() < 0.5
        self.k = rng.choice([1, 2, 5, 40])
        self.several = rng.choice([None, "list", "labels"])
        labels: dict[str | None, list[Any]] = {None: [0], "list": [0, 1, 2], "labels": ["b", "a"]}
        self.queries = {
            label: as_stored(random_vector(rng), self.element) or [1.0, 2.0, 3.0]
            for label in labels[self.several]
        }
        self.rows: list[Row] = []
        self.flow = ps.IncrementalFlow()
        self.flow.register_source(
            "docs",
            f"id BIGINT, title STRING, vec ARRAY<{self.element}>",
            primary_key="id" if self.keyed else None,
        )

    def register(self) -> None:
        query: Any = self.queries
        if self.several is None:
            query = self.queries[0]
        elif self.several == "list":
            query = list(self.queries.values())
        spec = ps.VectorViewSpec(
            source="docs",
            id="id",
            embedding="vec",
            query=query,
            k=self.k,
            metric=self.metric,  # type: ignore[arg-type]  # one of METRICS
            payload=["title"],
        )
        self.flow.register_vector_view("near", spec)

    def tick(self) -> None:
        changes: list[dict[str, Any]] = []
        for _ in range(self.rng.choice([0, 1, 3, 12])):
            if self.rows and self.rng.random() < 0.4:
                self._delete(changes)
            else:
                self._insert(changes)
        if changes:
            self.flow.feed("docs", ps.DeltaBatch.weighted(changes))
        self.flow.step()

    def _insert(self, changes: list[dict[str, Any]]) -> None:
        id_ = self.rng.randrange(9) if self.keyed else self.rng.choice([None, *range(6)])
        row: Row = (
            id_,
            self.rng.choice([None, "a", "b"]),
            as_stored(random_vector(self.rng), self.element),
        )
        if self.keyed:
            self.rows = [other for other in self.rows if other[0] != id_]
        self.rows.append(row)
        changes.append({"id": row[0], "title": row[1], "vec": row[2], "_weight": 1})

    def _delete(self, changes: list[dict[str, Any]]) -> None:
        # Mostly those that the view shows.
        shown = nearest(self.rows, self.queries, self.metric, self.k)
        ids = {row[1] for row in shown[:2]} if self.rng.random() < 0.6 else set()
        at = next((at for at, row in enumerate(self.rows) if row[0] in ids), 0)
        row = self.rows.pop(at)
        changes.append({"id": row[0], "title": row[1], "vec": row[2], "_weight": -1})

    def restore(self) -> None:
        """Go on with another flow, from a checkpoint."""
        self.flow.checkpoint(self.path)
        self.flow = ps.IncrementalFlow.load(self.path)

    def expected(self) -> list[tuple[Any, ...]]:
        rows = nearest(self.rows, self.queries, self.metric, self.k)
        return [row[1:] for row in rows] if self.several is None else rows

    def shown(self) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in self.flow.snapshot("near").to_pylist()]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    "number", [*range(6), *(pytest.param(n, marks=pytest.mark.soak) for n in range(6, 100))]
)
def test_incremental_is_brute_force(metric: str, number: int, tmp_path: Path) -> None:
    rng = random.Random(f"{SEED} {metric} {number}")
    history = History(rng, metric, tmp_path / "flow")
    with small_state():
        if rng.random() < 0.3:
            history.tick()
        history.register()
        watched: Counter[Any] = Counter(map(repr, history.shown()))
        watch = history.flow.watch_output("near")
        for at in range(14):
            history.tick()
            assert repr(history.shown()) == repr(history.expected())
            while (delta := watch.recv(timeout=0)) is not None:
                for row in delta.to_pylist():
                    weight = row.pop("_weight")
                    watched[repr(tuple(row.values()))] += weight
            assert +watched == Counter(map(repr, history.expected()))
            if at == 6:
                history.restore()
                watch = history.flow.watch_output("near")


@pytest.mark.parametrize("metric", METRICS)
def test_recomputing_gives_the_same(metric: str, tmp_path: Path) -> None:
    history = History(random.Random(f"{SEED} {metric}"), metric, tmp_path)
    history.register()
    history.flow.force_diff_based()
    for _ in range(8):
        history.tick()
        assert repr(history.shown()) == repr(history.expected())


NORMAL = st.floats(-1e6, 1e6, allow_subnormal=False).filter(lambda number: number == 0 or abs(number) > 1e-6)


@st.composite
def matrices(draw: st.DrawFn) -> tuple[list[float], list[list[float]]]:
    width = draw(st.integers(1, 40))
    vectors = st.lists(NORMAL, min_size=width, max_size=width).filter(any)
    return draw(vectors), draw(st.lists(vectors, min_size=1, max_size=6))


@pytest.mark.parametrize("metric", METRICS)
@settings(max_examples=60, deadline=None)
@given(data=matrices())
def test_scores_are_those_of_the_twin_and_nearly_exact(
    metric: str, data: tuple[list[float], list[list[float]]]
) -> None:
    query, vectors = data
    scores = score_function(metric, np.array(query))(np.array(vectors).T.copy()).tolist()
    assert scores == [score(metric, query, vector) for vector in vectors]
    for found, vector in zip(scores, vectors, strict=True):
        dot = math.fsum(a * b for a, b in zip(vector, query, strict=True))
        lengths = math.hypot(*vector), math.hypot(*query)
        if metric == "l2":
            assert math.isclose(found, math.dist(vector, query), rel_tol=1e-13)
        elif metric == "dot":
            assert math.isclose(found, dot, abs_tol=1e-13 * lengths[0] * lengths[1])
        else:
            assert math.isclose(found, dot / lengths[0] / lengths[1], abs_tol=1e-13)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("element", ["float", "double"])
@pytest.mark.parametrize("width", [1, 3, 8, 127, 128, 768])
def test_a_score_does_not_depend_on_the_batch(metric: str, element: str, width: int) -> None:
    """Whatever the rows beside it, where the row stands among them, and how its numbers are aligned."""
    rng = np.random.default_rng(SEED + width)
    dtype = np.float32 if element == "float" else np.float64
    vectors = rng.standard_normal((1_500, width)).astype(dtype)
    options = (("metric", metric), ("query", tuple(rng.standard_normal(width).tolist())))
    columns = (Column(0, f"array<{element}>"), Column(1, "bigint"))
    evaluator = evaluate.compile(Call("VectorScore", columns, "double", options=options))

    def scores(rows: np.ndarray[Any, Any], *, ahead: int = 0) -> list[int]:
        values = pa.array(np.concatenate((np.zeros(ahead, dtype), rows.ravel())))
        bounds = pa.array(np.arange(len(rows) + 1) * width + ahead)
        lists = pa.LargeListArray.from_arrays(bounds, values)
        found = evaluator([lists, pa.array(np.arange(len(rows)))], len(rows), TICK)
        return found.to_numpy().view(np.int64).tolist()  # type: ignore[no-any-return]

    together = scores(vectors)
    assert scores(vectors, ahead=3) == together
    for size in (1, 2, 3, 5, 17, 64, 1_000):
        start = int(rng.integers(0, len(vectors) - size))
        assert scores(vectors[start : start + size], ahead=size % 4) == together[start : start + size]
    order = rng.permutation(len(vectors))
    assert scores(vectors[order]) == [together[at] for at in order]
