"""Names of states: the same in every process, and made of what the state means alone."""

from __future__ import annotations

import subprocess
import sys

from penstock.circuit.state_key import Meaning, StateKey, StateNames, source_digest, view_digest
from penstock.plan import node as plan
from penstock.plan.node import Field

FIELDS = (Field("k", "bigint"), Field("v", "bigint", False))
ORDERS = source_digest("orders", FIELDS, (0,))


def scan(name: str = "orders", columns: tuple[int, ...] = (0, 1)) -> plan.Scan:
    return plan.Scan(tuple(FIELDS[column] for column in columns), name, columns)


def totals(below: plan.Node) -> plan.Aggregate:
    return plan.Aggregate(FIELDS, below, (0,), (plan.AggregateCall("Sum", (1,), "bigint"),))


def test_a_name_is_part_of_the_format() -> None:
    """Changing it makes saved states unreadable: it needs a new version of the format."""
    key = StateNames({"orders": ORDERS}).key(Meaning(totals(scan())), "groups")
    assert str(key) == "16baff27ae8cda6c165ce1ce44c20cc0.groups"


def test_a_name_is_the_same_in_another_process() -> None:
    script = (
        "from penstock.circuit.state_key import *; from penstock.plan import node as plan;"
        "f = (plan.Field('k', 'bigint'), plan.Field('v', 'bigint', False));"
        "s = plan.Scan(f, 'orders', (0, 1));"
        "n = StateNames({'orders': source_digest('orders', f, (0,))});"
        "print(n.key(Meaning(plan.TopK(f, s, (), (plan.SortKey(1),), 3), (1, 0)), 'rows'))"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    here = StateNames({"orders": ORDERS}).key(
        Meaning(plan.TopK(FIELDS, scan(), (), (plan.SortKey(1),), 3), (1, 0)), "rows"
    )
    assert printed == {f"{here}\n"}


def test_what_means_something_else_has_another_name() -> None:
    names = StateNames({"orders": ORDERS, "other": source_digest("other", FIELDS, (0,))})
    meanings = [
        Meaning(scan()),
        Meaning(scan(columns=(1, 0))),
        Meaning(scan("other")),
        Meaning(scan(), (0,)),
        Meaning(scan(), (0, 1)),
        Meaning(scan(), (1, 0)),
        Meaning(totals(scan())),
        Meaning(totals(scan("other"))),
        Meaning(totals(totals(scan()))),
        Meaning(totals(scan()), part=1),
        Meaning(plan.Union(FIELDS, (scan(), scan("other")))),
        Meaning(plan.Union(FIELDS, (scan("other"), scan()))),
    ]
    keys = [names.key(meaning, role) for meaning in meanings for role in ("rows", "counts")]
    assert len(set(keys)) == len(set(map(str, keys))) == len(keys)


def test_a_source_with_other_columns_is_another_one() -> None:
    assert source_digest("orders", FIELDS[:1], (0,)) != ORDERS
    assert source_digest("orders", FIELDS, ()) != ORDERS


def test_a_view_is_its_plan_whatever_its_name() -> None:
    names = StateNames({"orders": ORDERS})
    one, other = (plan.View(name, "", totals(scan())) for name in ("a", "b"))
    assert view_digest(names, one) == view_digest(names, other)
    changed = plan.View("a", "", totals(totals(scan())))
    assert view_digest(names, changed) != view_digest(names, one)
    # What reads the view has another name, too, when the view is another one.
    behind = [
        StateNames({"orders": ORDERS, "a": view_digest(names, view)}).node(totals(scan("a")))
        for view in (one, changed)
    ]
    assert behind[0] != behind[1]


def test_names_are_good_file_names() -> None:
    assert str(StateKey("9f", (), "rows")) == "9f.by-.rows"
