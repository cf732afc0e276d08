"""Installing jars with Ivy from a Maven repository of our own, which can be slow, wrong or gone."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from penstock.config import Settings
from penstock.errors import ConnectorError
from penstock.spark.boot import jars
from penstock.spark.progress import Progress, quiet
from processes import descendants

IVY_SETTINGS = """<ivysettings>
  <property name="ivy.checksums" value=""/>
  <settings defaultResolver="mine"/>
  <resolvers><ibiblio name="mine" m2compatible="true" usepoms="false" useMavenMetadata="false" root="{root}"/></resolvers>
</ivysettings>
"""
INSTALL = """
import sys
from pathlib import Path
from penstock.config import load
from penstock.spark.boot import jars
settings = load()
jars.ensure_jars(jars.needed(["demo"], jars.Lock(Path(sys.argv[1]))), jars.folder(settings), settings, what="demo")
"""


@dataclass
class Repository:
    """A Maven repository over HTTP, and the home of a user whose Ivy knows only this one."""

    home: Path
    files: dict[str, bytes] = field(default_factory=dict)
    downloads: list[str] = field(default_factory=list)
    half_sent: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    port: int = 0

    @property
    def settings(self) -> Settings:
        return Settings(home=self.home, java_home=os.environ.get("JAVA_HOME"))

    @property
    def folder(self) -> Path:
        return jars.folder(self.settings)

    @property
    def leftovers(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir() if path.name != ".lock")

    def add(self, name: str, size: int = 50_000) -> jars.Jar:
        """Publish a jar and return its lock entry."""
        content = random.Random(name).randbytes(size)
        jar = jars.Jar("org.demo", name, "1.0", None, size=size, sha256=hashlib.sha256(content).hexdigest())
        self.files[f"/org/demo/{name}/1.0/{jar.file_name}"] = content
        return jar

    def ensure(self, *wanted: jars.Jar) -> tuple[Path, ...]:
        return jars.ensure_jars(
            wanted,
            self.folder,
            self.settings,
            progress=quiet,
            what="demo",
            install="penstock connectors install demo",
        )

    def in_another_process(self, *wanted: jars.Jar) -> subprocess.Popen[str]:
        """Install these jars in a process of their own."""
        lock = self.home / "demo.lock.toml"
        entries = ", ".join(
            f'{{ coordinate = "{jar.coordinate}", size = {jar.size}, sha256 = "{jar.sha256}" }}'
            for jar in wanted
        )
        lock.write_text(f'[demo]\nabout = "for tests"\njars = [{entries}]\n')
        return subprocess.Popen(
            [sys.executable, "-c", INSTALL, str(lock)],
            env={**os.environ, "PENSTOCK_HOME": str(self.home)},
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    """A repository that answers at once until a test clears `go_on`."""
    place = Repository(tmp_path / "home")
    place.home.mkdir()
    place.go_on.set()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            content = place.files.get(self.path)
            self.send_response(200 if content is not None else 404)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            if content is None or not body:
                return
            place.downloads.append(self.path.rsplit("/", 1)[-1])
            try:
                self.wfile.write(content[: len(content) // 2])
                self.wfile.flush()
                place.half_sent.set()
                place.go_on.wait(60)
                self.wfile.write(content[len(content) // 2 :])
            except OSError:
                self.close_connection = True  # the other side was killed: that is the test

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    place.port = server.server_address[1]
    (place.home / "ivysettings.xml").write_text(IVY_SETTINGS.format(root=f"http://127.0.0.1:{place.port}/"))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield place
    place.go_on.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.smoke
def test_jars_are_installed_once_and_then_need_neither_network_nor_java(repository: Repository) -> None:
    wanted = (repository.add("one"), repository.add("two"))
    paths = repository.ensure(*wanted)
    assert [jars.sha256_of(path) for path in paths] == [jar.sha256 for jar in wanted]
    assert repository.leftovers == ["one-1.0.jar", "two-1.0.jar"]
    offline = Settings(home=repository.home, java_home="/nowhere")
    repository.files.clear()
    assert jars.ensure_jars(wanted, repository.folder, offline) == paths
    assert sorted(repository.downloads) == ["one-1.0.jar", "two-1.0.jar"]


def test_only_what_is_missing_is_fetched_and_progress_is_reported(repository: Repository) -> None:
    one, two = repository.add("one"), repository.add("two")
    repository.ensure(one)
    reports: list[Progress] = []
    jars.ensure_jars((one, two), repository.folder, repository.settings, progress=reports.append, what="demo")
    assert repository.downloads == ["one-1.0.jar", "two-1.0.jar"]
    assert reports[0] == Progress("installing demo", 0, two.size)
    assert reports[-1] == Progress("installed demo", two.size, two.size, "end")


def test_another_checksum_is_refused_and_the_good_jars_are_kept(repository: Repository) -> None:
    good, bad = repository.add("good"), repository.add("bad")
    repository.files["/org/demo/bad/1.0/bad-1.0.jar"] = b"x" * bad.size
    with pytest.raises(ConnectorError) as caught:
        repository.ensure(good, bad)
    assert caught.value.code == "CONNECTOR_CHECKSUM"
    assert "org.demo:bad:1.0" in caught.value.message
    assert bad.sha256 in caught.value.message
    assert "good" not in caught.value.message
    assert repository.leftovers == ["good-1.0.jar"]


def test_an_altered_jar_is_fetched_again(repository: Repository) -> None:
    jar = repository.add("one")
    (path,) = repository.ensure(jar)
    path.write_bytes(b"x" * jar.size)
    assert repository.ensure(jar) == (path,)
    assert jars.sha256_of(path) == jar.sha256


def test_an_altered_jar_is_never_used_when_it_cannot_be_fetched_again(repository: Repository) -> None:
    jar = repository.add("one")
    (path,) = repository.ensure(jar)
    path.write_bytes(b"x" * jar.size)
    repository.files.clear()
    with pytest.raises(ConnectorError, match=r"org\.demo:one:1\.0"):
        repository.ensure(jar)


def test_a_repository_without_the_jar(repository: Repository) -> None:
    jar = repository.add("one")
    repository.files.clear()
    with pytest.raises(ConnectorError) as caught:
        repository.ensure(jar)
    assert caught.value.code == "CONNECTOR_NOT_FOUND"
    assert "org.demo:one:1.0" in caught.value.message
    assert repository.leftovers == []


def test_no_network_and_no_cache_names_the_jars_and_the_command(repository: Repository) -> None:
    jar = repository.add("one")
    (repository.home / "ivysettings.xml").write_text(IVY_SETTINGS.format(root="http://127.0.0.1:1/"))
    with pytest.raises(ConnectorError) as caught:
        repository.ensure(jar)
    assert caught.value.code == "CONNECTOR_UNREACHABLE"
    assert caught.value.retryable
    assert "org.demo:one:1.0" in caught.value.message
    assert "penstock connectors install demo" in (caught.value.hint or "")
    assert repository.leftovers == []


def test_a_kill_during_a_download_breaks_nothing(repository: Repository) -> None:
    jar = repository.add("one", size=400_000)
    repository.go_on.clear()
    victim = repository.in_another_process(jar)
    assert repository.half_sent.wait(60)
    children = descendants(victim.pid)
    assert any("ivy" in " ".join(child.cmdline()) for child in children)
    victim.send_signal(signal.SIGKILL)
    victim.wait(10)
    assert victim.stderr is not None
    victim.stderr.close()
    assert not psutil.wait_procs(children, timeout=10)[1], "Ivy outlives the process that started it"
    assert not (repository.folder / jar.file_name).exists()
    assert len(repository.leftovers) == 1
    repository.go_on.set()
    (path,) = repository.ensure(jar)
    assert jars.sha256_of(path) == jar.sha256
    assert repository.leftovers == ["one-1.0.jar"]


def test_two_processes_install_one_after_the_other(repository: Repository) -> None:
    jar = repository.add("one", size=400_000)
    repository.go_on.clear()
    first = repository.in_another_process(jar)
    assert repository.half_sent.wait(60)
    second = repository.in_another_process(jar)
    deadline = time.monotonic() + 60
    assert second.stderr is not None
    assert first.stderr is not None
    assert second.stderr.readline() == "waiting for another process to install demo\n"
    assert time.monotonic() < deadline
    repository.go_on.set()
    assert first.wait(60) == 0
    assert second.wait(60) == 0
    assert first.stderr.read() == "installing demo: 0.4 MB\n"
    assert second.stderr.read() == ""
    first.stderr.close()
    second.stderr.close()
    assert repository.downloads == ["one-1.0.jar"]
    assert repository.leftovers == ["one-1.0.jar"]
