"""Addresses and answers of ClickHouse."""

from __future__ import annotations

import pickle
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
import pytest

from penstock.errors import ConfigError
from penstock.sinks.clickhouse.client import ClickHouseAddress, ClickHouseClient, Refusal
from penstock.sinks.clickhouse.options import ClickHouseOptions


def test_addresses_in_all_their_forms() -> None:
    address = ClickHouseAddress.of("https://me%40x:p%2Fw@db.example/shop?max_threads=2")
    assert (address.host, address.port, address.secure) == ("db.example", 8443, True)
    assert (address.user, address.password, address.database) == ("me@x", "p/w", "shop")
    assert address.settings == {"max_threads": "2"}
    assert address.location == "db.example:8443/shop"
    assert "p/w" not in repr(address)
    plain = ClickHouseAddress.of("http://db:9000?database=a&user=b&password=c")
    assert (plain.port, plain.database, plain.user, plain.password) == (9000, "a", "b", "c")
    assert ClickHouseAddress.of("http://db").database == "default"
    options = ClickHouseOptions.model_validate(
        {
            "url": "http://db:9000?database=a&user=b&password=c",
            "table": "t",
            "user": "you",
            "settings": {"insert_quorum": 2, "async": True},
            "timeout": "2 seconds",
        }
    )
    changed = options.address()
    assert (changed.user, changed.settings) == ("you", {"insert_quorum": "2", "async": "1"})
    assert (changed.password, changed.database, changed.seconds) == ("c", "a", 2.0)
    assert pickle.loads(pickle.dumps(changed)) == changed
    with pytest.raises(ConfigError, match="starts with http"):
        ClickHouseAddress.of("tcp://db:9000")


@pytest.mark.parametrize(
    ("status", "code", "transient", "of_rows"),
    [
        (500, 252, True, False),
        (500, 999, True, False),
        (404, 60, False, False),
        (403, 516, False, False),
        (500, 349, False, True),
        (503, None, True, False),
        (404, None, False, False),
    ],
)
def test_which_answers_are_transient(status: int, code: int | None, transient: bool, of_rows: bool) -> None:
    answer = Refusal("text", status=status, code=code)
    assert (answer.transient, answer.of_rows) == (transient, of_rows)


class _Numbers(BaseHTTPRequestHandler):
    """Answers every query with three rows, in pieces, as ClickHouse does."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        stream = pa.BufferOutputStream()
        rows = pa.table({"n": [1, 2, 3]})
        with pa.ipc.new_stream(stream, rows.schema) as writer:
            writer.write_table(rows)
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in (stream.getvalue().to_pybytes(), b""):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))

    def log_message(self, *_: object) -> None:
        pass


def test_a_connection_is_used_for_one_query_after_the_other() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Numbers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with ClickHouseClient(ClickHouseAddress.of(f"http://127.0.0.1:{server.server_port}")) as client:
                for _ in range(3):
                    [batch] = client.batches("SELECT n", {})
                    assert batch.column(0).to_pylist() == [1, 2, 3]
        finally:
            server.shutdown()
            thread.join()
