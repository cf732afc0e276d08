"""What nodes remember: apart from each other, under the names that people see in `penstock state show`."""

from __future__ import annotations

from typing import Any

from penstock.pipeline.values import NodeValues


class Values(dict[str, Any]):
    """Values in memory."""

    def put(self, key: str, value: Any) -> None:
        self[key] = value

    def remove(self, key: str) -> None:
        self.pop(key, None)


def test_nodes_do_not_see_each_other() -> None:
    values = Values()
    left, right = NodeValues(values, "a"), NodeValues(values, "b")
    left.put("n", 1)
    right.put("n", 2)
    assert (left.get("n"), right.get("n"), left.get("m", 7)) == (1, 2, 7)
    left.clear()
    assert (left.get("n"), right.get("n")) == (None, 2)


def test_remove_forgets_one_key() -> None:
    values = NodeValues(Values(), "a")
    values.put("n", 1)
    values.put("m", 2)
    values.remove("n")
    values.remove("never there")
    assert (values.get("n"), values.get("m")) == (None, 2)
    values.clear()
    assert values.get("m") is None


def test_a_node_whose_name_begins_like_another_one_is_apart() -> None:
    values = Values()
    NodeValues(values, "a").put("b/n", 1)
    other = NodeValues(values, "a/b")
    other.put("n", 2)
    assert NodeValues(values, "a").get("b/n") == 1
