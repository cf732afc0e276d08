"""A PostgreSQL server with a cluster of its own, from the system's package."""

from __future__ import annotations

import shutil
import signal
import subprocess
import uuid
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from servers.child import Child, spawn
from servers.installed import postgres_programs, postgres_user
from servers.server import Server

USER, PASSWORD = "penstock", "secret"


class Postgres(Server):
    """A server whose data outlive `stop` and `kill`, until the `with` block ends.

    with Postgres() as server:
        psycopg.connect(server.new_database())
    """

    name = "postgres"
    ends_at = signal.SIGINT  # without waiting for its clients

    def __init__(self) -> None:
        found = postgres_programs()
        assert found is not None, "PostgreSQL is not installed: run tools/install_test_servers.py"
        super().__init__()
        self.bin = found
        self.user = postgres_user()

    def url(self, database: str = "postgres") -> str:
        """Return the address of a database."""
        return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """Create a database that no other test uses, and return its address."""
        name = f"d{uuid.uuid4().hex[:12]}"
        self.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.url(name)

    def execute(self, query: str | sql.Composed, url: str | None = None) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        statement = query if isinstance(query, sql.Composed) else sql.SQL(query)
        with psycopg.connect(url or self.url(), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def _spawn(self, log: Path) -> Child:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
            "fsync": "off",
            "synchronous_commit": "off",
            "full_page_writes": "off",
            "shared_buffers": "64MB",
            "wal_level": "logical",  # change data capture reads it
            "max_wal_senders": "8",
            "max_replication_slots": "16",
            "max_connections": "100",
        }
        given = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        return spawn(
            [self.bin / "postgres", "-D", self.folder / "data", *given],
            log=log,
            cwd=self.folder,
            user=self.user,
        )

    def _prepare(self) -> None:
        (self.folder / "password").write_text(PASSWORD)
        if self.user:
            shutil.chown(self.folder, self.user)
            shutil.chown(self.folder / "password", self.user)
        done = subprocess.run(
            [
                *(
                    self.bin / "initdb",
                    "-D",
                    self.folder / "data",
                    "-U",
                    USER,
                    "-E",
                    "UTF8",
                    "--locale=C.UTF-8",
                ),
                *("--auth=scram-sha-256", f"--pwfile={self.folder / 'password'}", "--no-sync"),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=self.folder,
            user=self.user,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _is_ready(self) -> bool:
        try:
            psycopg.connect(self.url(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True
