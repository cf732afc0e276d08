from __future__ import annotations

import pytest

from penstock.errors import ConnectorError
from penstock.transforms.lookup.http import HttpBackend, HttpClient


@pytest.fixture
def client() -> HttpClient:
    backend = HttpBackend(
        "https://user:secret@host:8443/c/{a}?token=secret",
        "GET",
        ("a",),
        ("id",),
        {"Authorization": "secret"},
        1,
        1,
        1.0,
        0.0,
    )
    assert backend.where == "https://host:8443/c/{a}"
    assert "secret" not in repr(backend)
    return HttpClient(backend)


def test_objects_keep_their_own_text(client: HttpClient) -> None:
    body = b' [ {"id": 1, "n": 1.000000000000000000001} , {"id":2}\n]'
    assert list(client._items(body)) == [
        ({"id": 1, "n": 1.0}, '{"id": 1, "n": 1.000000000000000000001}'),
        ({"id": 2}, '{"id":2}'),
    ]
    assert list(client._items(b"[]")) == []


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b"[{]", b'[{"a": 1}', b"[,"])
def test_what_is_no_array_of_objects_is_refused(client: HttpClient, body: bytes) -> None:
    with pytest.raises(ConnectorError) as raised:
        list(client._items(body))
    assert raised.value.code == "LOOKUP_REFUSED"
