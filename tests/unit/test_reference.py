"""The reference of operators and functions is what the registries say today."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_is_current() -> None:
    spec = importlib.util.spec_from_file_location("write_reference", ROOT / "tools" / "write_reference.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    page = (ROOT / "docs" / "reference" / "kernel.md").read_text(encoding="utf-8")
    assert page == tool.page(), "run tools/write_reference.py"
    for part in (
        "| Asof |",
        "| Recomputed |",
        "`Coalesce`",
        "| `Percentile` | touched groups |",
        "`RowNumber`",
    ):
        assert part in page
