"""The state backend in a SQLite file."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from contract.backend import BackendContract, code_of
from penstock import config
from penstock.backend import open_backend
from penstock.errors import PenstockError


class TestSqlite(BackendContract):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        (tmp_path / "state.db").touch()
        return f"sqlite:///{tmp_path}/state.db"


def test_the_default_is_a_private_file_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PENSTOCK_STATE", raising=False)
    with open_backend(config.load()) as backend:
        backend.state.put("a", "b", 1)
    file = tmp_path / "home" / "state.db"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with sqlite3.connect(file) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_the_environment_names_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STATE", f"sqlite:///{tmp_path}/team.db")
    open_backend(config.load()).close()
    assert (tmp_path / "team.db").is_file()


def test_a_relative_path_starts_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    open_backend("sqlite:///deep/state.db").close()
    assert (tmp_path / "deep" / "state.db").is_file()


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("state.db", "STATE_URL"),
        ("sqlite://", "STATE_URL"),
        ("sqlite:///", "STATE_URL"),
        ("sqlite:///:memory:", "STATE_URL"),
        ("sqlite://host/state.db", "STATE_URL"),
        ("mysql://a:secret@b/c", "UNKNOWN_STATE_BACKEND"),
        ("postgresql://ann:secret@host:port/x", "STATE_URL"),
        ("postgresql://ann:se@secret@127.0.0.1:1/x", "STATE_URL"),
        ("postgresql://ann:se/secret@127.0.0.1:1/x", "STATE_UNREACHABLE"),
        ("postgresql://ann:secret@127.0.0.1:1/x", "STATE_UNREACHABLE"),
        ("postgresql://ann:secret@127.0.0.1:1/x?connect_timeout=2", "STATE_UNREACHABLE"),
        ("postgresql://ann:secret@127.0.0.1:1/x?nothing=2", "STATE_URL"),
        ("postgres://ann@127.0.0.1:1/x?password=secret", "STATE_UNREACHABLE"),
    ],
)
def test_a_url_that_cannot_work_says_why_and_hides_the_password(url: str, code: str) -> None:
    with pytest.raises(PenstockError) as caught:
        open_backend(url)
    assert caught.value.code == code
    assert "secret" not in str(caught.value)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_text("this is not a database, it only looks like one\n" * 100)
    assert code_of(lambda: open_backend(f"sqlite:///{tmp_path}/state.db")) == "STATE_CORRUPT"


def test_a_damaged_file(tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    with open_backend(f"sqlite:///{file}") as backend:
        for number in range(200):
            backend.state.put("job", f"key {number}", "x" * 1_000)
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    content = file.read_bytes()
    file.write_bytes(content[:4096] + os.urandom(len(content) - 4096))
    assert code_of(lambda: open_backend(f"sqlite:///{file}")) == "STATE_CORRUPT"


def test_a_missing_file_is_not_made_unasked(tmp_path: Path) -> None:
    assert code_of(lambda: open_backend(f"sqlite:///{tmp_path}/x.db", create=False)) == "STATE_MISSING"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert code_of(lambda: open_backend(f"sqlite:///{tmp_path}/file/state.db")) == "STATE_READ_ONLY"
    assert code_of(lambda: open_backend(f"sqlite:///{tmp_path}")) == "STATE_READ_ONLY"


def test_opening_it_twice_leaves_it_to_its_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    read = (
        "import sys; from penstock.backend import open_backend\n"
        "with open_backend(sys.argv[1]) as b: print(b.state.get('job', 'key'))"
    )

    def elsewhere() -> str:
        return subprocess.run(
            [sys.executable, "-c", read, url], capture_output=True, text=True, check=True, timeout=60
        ).stdout.strip()

    with open_backend(url) as backend:
        backend.state.put("job", "key", 1)
        open_backend(url).close()
        assert elsewhere() == "1"
        backend.state.put("job", "key", 2)
        assert elsewhere() == "2"


def test_a_locked_database_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.backend.sqlite.BUSY_SECONDS", 0.2)
    with open_backend(f"sqlite:///{tmp_path}/state.db") as backend:
        other = sqlite3.connect(tmp_path / "state.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert code_of(lambda: backend.state.put("a", "b", 1)) == "STATE_LOCKED"
        assert backend.state.get("a", "b") is None  # readers do not wait
        other.execute("ROLLBACK")
        other.close()
        backend.state.put("a", "b", 1)


PLUGIN = """
from penstock.backend.address import parse
from penstock.backend.sqlite import Sqlite

class Renamed(Sqlite):
    def connect(self, address, *, create):
        return super().connect(parse(address.url.replace("mine://", "sqlite://")), create=create)
"""


def test_another_package_brings_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_backend.py").write_text(PLUGIN)
    info = tmp_path / "my_backend-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-backend\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[penstock.backends]\nmine = my_backend:Renamed\n")
    monkeypatch.syspath_prepend(tmp_path)
    with open_backend(f"mine:///{tmp_path}/mine.db") as backend:
        backend.state.put("a", "b", 1)
    assert (tmp_path / "mine.db").is_file()


def test_a_second_connection_of_a_process_takes_no_lock_of_the_first(tmp_path: Path) -> None:
    """SQLite's locks are those of the process, and end when it closes the file anywhere: others would take the log away."""
    url = f"sqlite:///{tmp_path}/state.db"
    program = (
        "import sys; from penstock.backend import open_backend\n"
        "with open_backend(sys.argv[1]) as backend: print(backend.state.get('job', 'value'))"
    )

    def seen_by_another_process() -> str:
        command = [sys.executable, "-c", program, url]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    with open_backend(url) as backend:
        for number in range(3):
            open_backend(url).close()
            backend.state.put("job", "value", number)
            assert seen_by_another_process() == str(number)
