"""`penstock jobs`."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from penstock import config
from penstock.backend import (
    Backend,
    Heartbeat,
    Job,
    JobState,
    Lease,
    Owner,
    Start,
    open_backend,
    this_process,
)
from penstock.cli.main import main
from waiting import wait_for

DEFINITION = {"sql": "SELECT 1", "sasl.password": "hunter2", "url": "postgresql://ann:hunter2@db/x"}
PROGRESS = {"batch_id": 7, "input_rows": 500, "output_rows": 50, "duration_ms": 250, "lag": 12}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    monkeypatch.delenv("PENSTOCK_STATE", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def backend(home: Path) -> Iterator[Backend]:
    with open_backend(config.load()) as opened:
        yield opened


class Holder:
    """A process that runs a job, as far as the backend can tell; the heartbeat's requests end or restart it."""

    def __init__(
        self, backend: Backend, job: Job, *, ttl_ms: int = 3_000, ends_as: JobState = JobState.STOPPED
    ) -> None:
        self.backend, self.job, self.ends_as = backend, job, ends_as
        self.lease = backend.leases.acquire(job.name, this_process("s1"), ttl_ms=ttl_ms)
        self.ended = threading.Event()
        self.heart = Heartbeat(backend, self.lease, on_lost=lambda _: None, on_request=self.asked)
        self.start()

    def start(self) -> None:
        self.backend.jobs.record(self.job, self.lease)
        self.backend.jobs.update(self.lease, state=JobState.RUNNING, progress=PROGRESS)

    def asked(self, request: str) -> None:
        if request in ("pause", "resume"):
            state = JobState.PAUSED if request == "pause" else JobState.RUNNING
            self.backend.jobs.update(self.lease, state=state)
            return
        if request == "restart":
            time.sleep(0.01)
            self.backend.jobs.update(self.lease, state=JobState.STARTING)
            self.backend.jobs.update(self.lease, state=JobState.RUNNING)
            return
        self.backend.jobs.update(self.lease, state=JobState.STOPPING)
        self.backend.jobs.update(
            self.lease, state=self.ends_as, message=None if self.ends_as is JobState.STOPPED else "boom"
        )
        self.backend.leases.release(self.lease)
        self.ended.set()

    def __enter__(self) -> Holder:
        self.heart.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.heart.stop()


def lost(backend: Backend, name: str = "orders", owner: Owner | None = None) -> Lease:
    """A job whose process has ended without a word."""
    lease = backend.leases.acquire(name, owner or Owner("elsewhere", 4711), ttl_ms=1)
    backend.jobs.record(Job(name, start=Start(("python", "app.py"), "/srv", place="app.py:3")), lease)
    time.sleep(0.01)
    return lease


def test_an_empty_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "list"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("no jobs yet in sqlite:///")
    assert main(["jobs", "list", "-o", "csv"]) == 0
    assert capsys.readouterr().out.startswith("name,kind,state,durability,owner,since,")


def test_the_list(backend: Backend, capsys: pytest.CaptureFixture[str]) -> None:
    lost(backend, "a lost one")
    with Holder(backend, Job("orders", kind="pipeline")) as holder:
        assert main(["jobs", "list"]) == 0
        table = capsys.readouterr().out
        assert main(["jobs", "list", "-o", "json"]) == 0
        first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert "a lost one" in table
    assert " RUNNING " in table
    assert first["state"] == "LOST"
    assert first["owner"] == "elsewhere:4711"
    owner = holder.lease.owner
    assert second == {
        "name": "orders",
        "kind": "pipeline",
        "state": "RUNNING",
        "durability": "memory",
        "owner": f"{owner.host}:{owner.pid}",
        "since": second["since"],
        "last_batch": 7,
        "input_rows_per_second": 2000.0,
        "output_rows_per_second": 200.0,
        "lag": 12,
    }


def test_the_durability_follows_from_the_checkpoint_unless_the_job_says_it(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [
        Job("by disk", checkpoint="ckpt/"),
        Job("by store", checkpoint="s3://bucket/ckpt"),
        Job("flow", kind="flow", checkpoint="/mnt/flow", definition={"durability": "shared"}),
        Job("neither"),
    ]
    for job in jobs:
        with Holder(backend, job):
            assert main(["jobs", "show", job.name, "-o", "json"]) == 0
    shown = [json.loads(line)["durability"] for line in capsys.readouterr().out.splitlines()]
    assert shown == ["local", "shared", "shared", "memory"]


def test_the_lag_of_several_sources_is_their_sum(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    lease = backend.leases.acquire("orders", Owner("elsewhere", 4711))
    backend.jobs.record(Job("orders"), lease)
    for sources, lag in (([{"lag": 3}, {"lag": None}, {"lag": 4}], 7), ([{"lag": None}], None), ([], None)):
        backend.jobs.update(lease, progress={"sources": sources})
        assert main(["jobs", "list", "-o", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["lag"] == lag


def test_show_has_everything_but_secrets(backend: Backend, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    start = Start(("app", "--url=postgresql://ann:hunter2@db/x"), "/srv", place="app.py:3")
    with Holder(backend, Job("orders", definition=DEFINITION, checkpoint="ck/", start=start)) as holder:
        backend.epochs.commit(holder.lease, 4, {"to": 10})
        for form in ("table", "json", "csv", "arrow"):
            assert main(["jobs", "show", "orders", "-o", form]) == 0
            shown = capfdbinary.readouterr().out
            assert b"hunter2" not in shown
            assert all(part in shown for part in (b"ck/", b"app.py:3", b"SELECT 1", b"RUNNING"))
            if form == "json":
                record = json.loads(shown)
            if form == "arrow":
                assert pa.ipc.open_stream(shown).read_all().num_rows == 1
    assert record["progress"] == PROGRESS
    assert (record["last_epoch"], record["last_epoch_meta"]) == (4, {"to": 10})
    assert record["lease"]["held"]
    assert record["owner"]["session"] == "s1"


def test_a_lost_job_says_when_it_was_last_heard_of(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    lost(backend)
    assert main(["jobs", "show", "orders"]) == 0
    assert "ended without a word: process 4711 on elsewhere, last heard of at 20" in capsys.readouterr().out


def test_a_mistyped_name_suggests(backend: Backend, capsys: pytest.CaptureFixture[str]) -> None:
    lost(backend)
    for command in ("show", "stop", "restart", "logs"):
        assert main(["jobs", command, "order"]) == 2
        assert "did you mean 'orders'?" in capsys.readouterr().err


def test_stop_waits_until_it_has_stopped(backend: Backend, capsys: pytest.CaptureFixture[str]) -> None:
    with Holder(backend, Job("orders")) as holder:
        assert main(["jobs", "stop", "orders"]) == 0
        assert holder.ended.is_set()
    assert capsys.readouterr().out == "'orders' has stopped\n"
    assert main(["jobs", "stop", "orders"]) == 0
    assert capsys.readouterr().out == "'orders' does not run, it is STOPPED\n"


def test_a_job_that_fails_while_it_stops(backend: Backend, capsys: pytest.CaptureFixture[str]) -> None:
    with Holder(backend, Job("orders"), ends_as=JobState.FAILED):
        assert main(["jobs", "stop", "orders"]) == 1
    assert capsys.readouterr().out == "'orders' is FAILED: boom\n"


def test_stop_says_when_the_holder_is_gone(backend: Backend, capsys: pytest.CaptureFixture[str]) -> None:
    me = this_process()
    gone = Owner(me.host, me.pid, me.started - 1, "", me.machine)
    lease = backend.leases.acquire("orders", gone, ttl_ms=1_500)
    backend.jobs.record(Job("orders"), lease)
    assert main(["jobs", "stop", "orders"]) == 0
    out, err = capsys.readouterr()
    assert "is gone; waiting for the end of its lease" in err
    assert "is LOST: ended without a word" in out


def test_stop_does_not_wait_for_ever(backend: Backend, capsys: pytest.CaptureFixture[str]) -> None:
    lease = backend.leases.acquire("orders", Owner("elsewhere", 4711), ttl_ms=60_000)
    backend.jobs.record(Job("orders"), lease)
    assert main(["jobs", "stop", "orders", "--timeout", "0.3"]) == 1
    assert "has not stopped within 0.3 seconds" in capsys.readouterr().err
    assert main(["jobs", "stop", "orders", "--timeout", "0"]) == 0
    assert capsys.readouterr().out == "asked process 4711 on elsewhere to stop 'orders'\n"


def test_a_query_of_a_program_names_its_program(backend: Backend, capsys: pytest.CaptureFixture[str]) -> None:
    start = Start(("python", "app.py", "--token=hunter2"), "/srv", place="app.py:3")
    with Holder(backend, Job("orders", start=start)) as holder:
        assert main(["jobs", "restart", "orders"]) == 1
        assert not holder.ended.is_set()
    err = capsys.readouterr().err
    assert "only its program can start it again" in err
    assert "in /srv by `python app.py --token=***`, at app.py:3" in err
    assert "hunter2" not in err


def test_a_restart_in_place(backend: Backend, capsys: pytest.CaptureFixture[str]) -> None:
    with Holder(backend, Job("orders", start=Start(("penstock", "serve"), "/srv", again="request"))):
        before = backend.jobs.get("orders").started_at
        assert main(["jobs", "restart", "orders"]) == 0
        assert backend.jobs.get("orders").started_at != before
    assert capsys.readouterr().out == "'orders' is RUNNING\n"
    wait_for(lambda: backend.jobs.get("orders").state is JobState.LOST)
    assert main(["jobs", "restart", "orders"]) == 1
    assert "the process that ran it is gone" in capsys.readouterr().err


def group(name: str, log: Path | None = None, **nodes: str) -> Job:
    """The job of a group of the pipeline 'shop'."""
    definition = {
        "group": name,
        "pausable": True,
        "nodes": {node: {"kind": kind} for node, kind in nodes.items()},
    }
    start = Start(("penstock", "run", "shop.yaml"), "/srv", again="request")
    full = f"shop/{name}" if name else "shop"
    return Job(full, kind="pipeline", definition=definition, log=str(log) if log else None, start=start)


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_a_job_without_batches_is_not_asked_to_pause(
    backend: Backend, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    for job in (Job("view", kind="flow"), Job("batch", definition={"trigger": "once", "pausable": False})):
        with Holder(backend, job):
            assert main(["jobs", command, job.name]) == 1
            assert backend.jobs.get(job.name).request is None
        assert f"'{job.name}' has no batches between which it could be paused" in capsys.readouterr().err


@pytest.mark.parametrize("first", ["", "orders"])
def test_the_name_of_a_pipeline_stands_for_all_its_groups(
    backend: Backend, home: Path, capsys: pytest.CaptureFixture[str], first: str
) -> None:
    one, two = group(first, home / "1.log", orders="source"), group("clicks", home / "2.log", clicks="source")
    for number in (1, 2):
        (home / f"{number}.log").write_text(f"{number}\n")

    def said(*words: str, code: int = 0) -> list[str]:
        assert main(["jobs", *words]) == code
        return capsys.readouterr().out.splitlines()

    with Holder(backend, one) as holder, Holder(backend, two), Holder(backend, Job("shop/other")):
        names = [one.name, two.name] if first == "" else [two.name, one.name]
        assert [json.loads(line)["name"] for line in said("show", "shop", "-o", "json")] == names
        assert said("pause", "shop") == [f"'{name}' is paused" for name in names]
        assert backend.jobs.get("shop/other").state is JobState.RUNNING
        assert said("resume", "shop", "--node", "clicks") == ["'shop/clicks' goes on"]
        assert said("resume", "shop") == [f"'{name}' goes on" for name in names]
        logs = {one.name: "1", two.name: "2"}
        assert said("logs", "shop") == [
            *(f"==> {names[0]} <==", logs[names[0]], ""),
            *(f"==> {names[1]} <==", logs[names[1]]),
        ]
        assert said("logs", "shop/clicks") == ["2"]
        assert said("restart", "shop") == [f"'{name}' is RUNNING" for name in names]
        assert said("stop", "shop/clicks") == ["'shop/clicks' has stopped"]
        # A group that has ended does not keep the other from anything.
        assert said("pause", "shop") == [f"'{one.name}' is paused"]
        assert said("restart", "shop") == [f"'{one.name}' is RUNNING"]
        assert f"'{one.name}' has stopped" in said("stop", "shop")
        assert holder.ended.is_set()
        assert main(["jobs", "stop", "shopp"]) == 2
        assert "did you mean 'shop'?" in capsys.readouterr().err


PROGRAM = """
import sys, threading
from penstock import config
from penstock.backend import *
backend, ended = open_backend(config.load()), threading.Event()
lease = backend.leases.acquire("orders", this_process(), ttl_ms=5000)
start = Start(tuple(sys.argv[1:]), ".", again="command")
backend.jobs.record(Job("orders", log="orders.log", start=start), lease)
with Heartbeat(backend, lease, on_lost=lambda _: ended.set(), on_request=lambda _: ended.set()):
    backend.jobs.update(lease, state=JobState.RUNNING)
    print("it runs", flush=True)
    ended.wait(60)
backend.jobs.update(lease, state=JobState.STOPPED)
backend.leases.release(lease)
backend.close()
"""


def test_a_restart_by_its_command(backend: Backend, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "program.py").write_text(PROGRAM)
    command = [sys.executable, "program.py"]
    words = [*command, *command]
    start = Start((*command, *words), str(home), again="command")
    with Holder(backend, Job("orders", log=str(home / "orders.log"), start=start)) as holder:
        assert main(["jobs", "restart", "orders", "--timeout", "30"]) == 0
        assert holder.ended.is_set()
    out, err = capsys.readouterr()
    assert out == "'orders' is RUNNING\n"
    assert "starting `" in err
    job = backend.jobs.get("orders")
    assert job.lease is not None
    assert job.lease.epoch == 2
    assert (home / "orders.log").read_text() == "it runs\n"
    assert main(["jobs", "stop", "orders"]) == 0
    backend.leases.acquire("orders", this_process(), wait_ms=10_000)


def test_an_ended_pipeline_is_run_again_by_its_command(
    backend: Backend, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command starts all groups; it prints into a log of its own."""
    program = PROGRAM.replace('"orders", log="orders.log"', '"shop/orders", kind="pipeline"')
    (home / "program.py").write_text(program.replace('acquire("orders"', 'acquire("shop/orders"'))
    (home / "shop.yaml").touch()
    command = (sys.executable, "program.py", "never")
    start = Start(command, str(home), str(home / "shop.yaml"), again="request")
    for name in ("clicks", "orders"):
        with Holder(backend, replace(group(name), start=start)) as holder:
            assert main(["jobs", "stop", f"shop/{name}"]) == 0
            assert holder.ended.is_set()
    capsys.readouterr()
    assert main(["jobs", "restart", "shop", "--timeout", "30"]) == 0
    out, err = capsys.readouterr()
    log = home / "logs" / "shop_orders.run.log"
    assert (out, f"its output goes to {log}" in err) == ("'shop/orders' is RUNNING\n", True)
    assert log.read_text() == "it runs\n"
    assert main(["jobs", "stop", "shop/orders"]) == 0
    backend.leases.acquire("shop/orders", this_process(), wait_ms=10_000)
    secret = replace(start, argv=(*command, "--conf", "spark.hadoop.fs.s3a.secret.key=***"))
    with Holder(backend, replace(group("secret"), start=secret)):
        assert main(["jobs", "stop", "shop/secret"]) == 0
    assert main(["jobs", "restart", "shop/secret"]) == 1
    assert "its command line had secrets" in capsys.readouterr().err
    (home / "shop.yaml").unlink()
    assert main(["jobs", "restart", "shop/clicks"]) == 1
    assert "the process that ran it is gone" in capsys.readouterr().err


def test_a_command_that_does_not_start_it(
    backend: Backend, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for argv, says in (
        ((sys.executable, "-c", "exit(3)"), "its command ended with 3"),
        (("/no/such/program",), "cannot be started: No such file or directory"),
    ):
        lease = backend.leases.acquire("orders", Owner("elsewhere", 1), ttl_ms=1, wait_ms=5_000)
        backend.jobs.record(Job("orders", start=Start(argv, str(home), again="command")), lease)
        time.sleep(0.01)
        assert main(["jobs", "restart", "orders"]) == 1
        assert says in capsys.readouterr().err


def test_logs(backend: Backend, home: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    log = home / "orders.log"
    log.write_bytes(b"".join(b"line %d\n" % number for number in range(20_000)))
    lease = backend.leases.acquire("orders", Owner("elsewhere", 1))
    backend.jobs.record(Job("orders", log=str(log)), lease)
    assert main(["jobs", "logs", "orders"]) == 0
    assert capfdbinary.readouterr().out == log.read_bytes()
    for lines in (0, 1, 3, 19_999, 20_000, 30_000):
        assert main(["jobs", "logs", "orders", "-n", str(lines)]) == 0
        assert len(capfdbinary.readouterr().out.splitlines()) == min(lines, 20_000)
    log.unlink()
    assert main(["jobs", "logs", "orders"]) == 1
    assert b"it was written on elsewhere" in capfdbinary.readouterr().err
    backend.jobs.record(Job("orders"), lease)
    assert main(["jobs", "logs", "orders"]) == 1
    assert b"has no log file" in capfdbinary.readouterr().err


def test_logs_are_followed_through_a_rotation_until_the_job_ends(backend: Backend, home: Path) -> None:
    log = home / "orders.log"
    log.write_text("one\n")
    with Holder(backend, Job("orders", log=str(log)), ttl_ms=5_000) as holder:
        command = [sys.executable, "-m", "penstock", "jobs", "logs", "orders", "-f"]
        reader = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert reader.stdout is not None
        assert reader.stdout.readline() == "one\n"
        with log.open("a") as file:
            file.write("two\n")
        assert reader.stdout.readline() == "two\n"
        log.rename(home / "orders.log.1")
        log.write_text("three\n")
        assert reader.stdout.readline() == "three\n"
        log.write_text("4\n")
        assert reader.stdout.readline() == "4\n"
        holder.asked("stop")
        with log.open("a") as file:
            file.write("five\n")
        rest, _ = reader.communicate(timeout=10)
    assert reader.returncode == 0
    assert rest in ("five\n", "")


def test_another_database_is_not_made_by_looking(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["jobs", "list", "--state", "sqlite:///typo.db"]) == 1
    assert f"at: sqlite:///{home}/typo.db" in capsys.readouterr().err
    monkeypatch.setenv("PENSTOCK_STATE", "postgresql://ann:hunter2@127.0.0.1:1/x")
    assert main(["jobs", "list"]) == 1
    err = capsys.readouterr().err
    assert "postgresql://ann:***@127.0.0.1:1/x" in err
    assert "hunter2" not in err
    assert list(home.glob("*.db")) == []


def test_the_config_file_names_the_database(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "config.toml").write_text('state = "sqlite:///team.db"\n')
    open_backend(config.load()).close()
    assert (home / "team.db").is_file()
    assert main(["jobs", "list"]) == 0
    assert "team.db" in capsys.readouterr().err
