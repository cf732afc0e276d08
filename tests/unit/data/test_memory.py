"""The kernel's arrays and the operating system's pages."""

from __future__ import annotations

import pytest

from penstock.data import memory


def test_the_switch_is_put_back() -> None:
    assert memory._switch is not None
    before = memory._switch(True)
    try:
        with memory.plain_pages():
            assert memory._switch(False) is False
        assert memory._switch(True) is True
        with pytest.raises(ValueError, match="wrong"), memory.plain_pages():
            raise ValueError("wrong")
        assert memory._switch(True) is True
    finally:
        memory._switch(before)


def test_without_a_switch_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_switch", None)
    with memory.plain_pages():
        pass
