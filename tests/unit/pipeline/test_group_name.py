"""Which group of a changed pipeline goes on from which earlier one."""

from __future__ import annotations

import pytest

from penstock.pipeline.group_name import group_names, job_name

ORDERS = {"orders": "source", "out": "sink"}
CLICKS = {"clicks": "source", "clicked": "sink"}


@pytest.mark.parametrize(
    ("groups", "before", "names"),
    [
        ([ORDERS], {}, [""]),
        ([ORDERS, CLICKS], {}, ["orders", "clicks"]),
        ([ORDERS, CLICKS], {"": ORDERS}, ["", "clicks"]),
        ([CLICKS, ORDERS], {"": ORDERS}, ["clicks", ""]),
        ([CLICKS], {"orders": ORDERS, "clicks": CLICKS}, ["clicks"]),
        ([CLICKS, ORDERS], {"orders": ORDERS, "clicks": CLICKS}, ["clicks", "orders"]),
        ([ORDERS | CLICKS], {"orders": ORDERS, "clicks": CLICKS}, ["orders"]),
        ([ORDERS, CLICKS], {"": ORDERS | CLICKS}, ["", "clicks"]),
        # The source has another name, and its sink says which group it is.
        (
            [{"sales": "source", "out": "sink"}, CLICKS],
            {"orders": ORDERS, "clicks": CLICKS},
            ["orders", "clicks"],
        ),
        # A sink that moves does not take the name along.
        ([ORDERS, CLICKS | {"out": "sink"}], {"orders": ORDERS, "clicks": CLICKS}, ["orders", "clicks"]),
        ([{"new": "source"}], {"": ORDERS}, [""]),
    ],
)
def test_groups_keep_their_names(
    groups: list[dict[str, str]], before: dict[str, dict[str, str]], names: list[str]
) -> None:
    assert group_names(groups, before) == names


def test_names_of_jobs() -> None:
    assert (job_name("p", ""), job_name("p", "orders")) == ("p", "p/orders")
