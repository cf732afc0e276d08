"""The kernel's arrays and the operating system's pages."""

from __future__ import annotations

import pytest

from penstock.data import huge_pages


def test_the_switch_is_put_back() -> None:
    assert huge_pages._switch is not None
    before = huge_pages._switch(True)
    try:
        with huge_pages.plain_pages():
            assert huge_pages._switch(False) is False
        assert huge_pages._switch(True) is True
        with pytest.raises(ValueError, match="wrong"), huge_pages.plain_pages():
            raise ValueError("wrong")
        assert huge_pages._switch(True) is True
    finally:
        huge_pages._switch(before)


def test_without_a_switch_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    switch = huge_pages._switch
    assert switch is not None
    before = switch(True)
    try:
        monkeypatch.setattr(huge_pages, "_switch", None)
        with huge_pages.plain_pages():
            assert switch(True) is True
        assert switch(True) is True
    finally:
        switch(before)


def test_two_threads_that_overlap_leave_the_switch_as_it_was() -> None:
    switch = huge_pages._switch
    assert switch is not None
    before = switch(True)
    try:
        first, second = huge_pages.plain_pages(), huge_pages.plain_pages()
        with first:
            second.__enter__()
        assert switch(False) is False, "the second one is still inside"
        second.__exit__(None, None, None)
        assert switch(True) is True
    finally:
        switch(before)
