"""Views as people write them every day are the kernel's."""

from __future__ import annotations

import pytest

from golden.recording import recorded

# Of the views in tests/golden/cases; what they answer is a golden case each.
LEAST = {"everyday": 0.95, "workaday": 0.97}


@pytest.mark.parametrize("area", LEAST)
def test_everyday_views_need_no_spark(area: str) -> None:
    views = recorded(area)
    others = {
        name: [line for lines in recording.tiers.values() for line in lines if ": kernel" not in line]
        for name, recording in views.items()
    }
    others = {name: lines for name, lines in others.items() if lines}
    share = 1 - len(others) / len(views)
    assert share >= LEAST[area], (
        f"{len(views) - len(others)} of {len(views)} are in the kernel; not: {others}"
    )
