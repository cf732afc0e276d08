"""Iceberg's own REST catalog server, from Maven's jars, with its pointers in PostgreSQL and its tables in a folder."""

from __future__ import annotations

import shutil
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.spark import catalogs
from penstock.spark.classpath import spark_home
from servers import jar
from servers.child import Child, free_port, spawn


class RestCatalog:
    """A catalog that keeps its tables until the `with` block ends.

    with Postgres() as server, RestCatalog(server.new_database()) as catalog:
        ps.Session.embedded(catalogs={"lake": {"type": "rest", "uri": catalog.uri}})
    """

    def __init__(self, database: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-rest-"))
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        behind = {"type": "jdbc", "uri": database, "warehouse": str(self.folder / "warehouse")}
        prefix = "spark.sql.catalog.behind."
        conf = catalogs.conf_of("behind", behind).items()
        self.options = {key.removeprefix(prefix): value for key, value in conf if key.startswith(prefix)}
        self.options["catalog-impl"] = "org.apache.iceberg.jdbc.JdbcCatalog"
        del self.options["type"]
        self._child: Child | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def start(self) -> None:
        """Start the server, again after `stop` or `kill`, on the same port."""
        assert self._child is None, "the server is running"
        # The server takes its catalog's options from variables: two underscores are a dash, one is a dot.
        names = {key: key.replace("-", "__").replace(".", "_").upper() for key in self.options}
        self._child = spawn(
            [
                *jar.java(memory="256m"),
                *("-cp", f"{jar.class_path('iceberg-rest')}:{spark_home() / 'jars'}/*"),
                "org.apache.iceberg.rest.RESTCatalogServer",
            ],
            log=self.folder / "server.log",
            cwd=self.folder,
            env={
                "REST_PORT": str(self.port),
                "CATALOG_REST_PORT": str(self.port),
                **{f"CATALOG_{names[key]}": value for key, value in self.options.items()},
            },
        )
        self._child.wait_until(self._is_ready)

    def stop(self) -> None:
        """End the server in order."""
        if self._child is not None:
            self._child.stop()
            self._child = None

    def kill(self) -> None:
        """End the server as a power cut would."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/v1/config", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def _remove(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
