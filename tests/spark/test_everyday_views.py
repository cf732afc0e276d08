"""Views as people write them every day are the kernel's."""

from __future__ import annotations

from golden.recording import recorded

# Of the views in tests/golden/cases/everyday.yaml; what they answer is a golden case each.
LEAST = 0.95


def test_everyday_views_need_no_spark() -> None:
    views = recorded("everyday")
    others = {
        name: [line for lines in recording.tiers.values() for line in lines if ": kernel" not in line]
        for name, recording in views.items()
    }
    others = {name: lines for name, lines in others.items() if lines}
    share = 1 - len(others) / len(views)
    assert share >= LEAST, f"{len(views) - len(others)} of {len(views)} are in the kernel; not: {others}"
