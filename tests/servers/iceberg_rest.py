"""Iceberg's own REST catalog server, from Maven's jars, with its pointers in PostgreSQL and its tables in a folder."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

from penstock.spark import catalogs
from penstock.spark.boot.classpath import spark_home
from servers import jar
from servers.child import Child, spawn
from servers.server import Server


class RestCatalog(Server):
    """A catalog that keeps its tables until the `with` block ends.

    with Postgres() as server, RestCatalog(server.new_database()) as catalog:
        ps.Session.embedded(catalogs={"lake": {"type": "rest", "uri": catalog.uri}})
    """

    name = "rest"

    def __init__(self, database: str) -> None:
        super().__init__()
        self.uri = f"http://127.0.0.1:{self.port}"
        behind = {"type": "jdbc", "uri": database, "warehouse": str(self.folder / "warehouse")}
        prefix = "spark.sql.catalog.behind."
        conf = catalogs.conf_of("behind", behind).items()
        self.options = {key.removeprefix(prefix): value for key, value in conf if key.startswith(prefix)}
        self.options["catalog-impl"] = "org.apache.iceberg.jdbc.JdbcCatalog"
        del self.options["type"]

    def _spawn(self, log: Path) -> Child:
        # The server takes its catalog's options from variables: two underscores are a dash, one is a dot.
        names = {key: key.replace("-", "__").replace(".", "_").upper() for key in self.options}
        return spawn(
            [
                *jar.java(memory="256m"),
                *("-cp", f"{jar.class_path('iceberg-rest')}:{spark_home() / 'jars'}/*"),
                "org.apache.iceberg.rest.RESTCatalogServer",
            ],
            log=log,
            cwd=self.folder,
            env={
                "REST_PORT": str(self.port),
                "CATALOG_REST_PORT": str(self.port),
                **{f"CATALOG_{names[key]}": value for key, value in self.options.items()},
            },
        )

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/v1/config", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False
