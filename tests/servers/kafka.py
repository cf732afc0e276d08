"""A Kafka broker: one node in KRaft mode, from Maven's jars."""

from __future__ import annotations

import base64
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from servers import jar
from servers.child import Child, answers, free_port, spawn

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/data
num.partitions=1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
"""
LOG4J = """\
rootLogger.level=warn
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %c: %m%n
"""


class Broker:
    """A broker whose topics outlive `stop` and `kill`, until the `with` block ends.

    with Broker() as broker:
        broker.create_topic("orders", partitions=2)
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-kafka-"))
        self.port, self.controller = free_port(), free_port()
        self.bootstrap_servers = f"127.0.0.1:{self.port}"
        self._child: Child | None = None
        self._command = [
            *jar.java(memory="512m"),
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}",
            *("-cp", jar.class_path("kafka")),
        ]
        (self.folder / "log4j2.properties").write_text(LOG4J)
        (self.folder / "server.properties").write_text(
            PROPERTIES.format(port=self.port, controller=self.controller, folder=self.folder)
        )

    def __enter__(self) -> Self:
        try:
            self._format()
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
        """Start the broker, again after `stop` or `kill`, on the same port and with the same topics."""
        assert self._child is None, "the broker is running"
        self._child = spawn(
            [*self._command, "kafka.Kafka", self.folder / "server.properties"],
            log=self.folder / "broker.log",
            cwd=self.folder,
        )
        self._child.wait_until(self._is_ready)

    def stop(self) -> None:
        """End the broker in order."""
        if self._child is not None:
            self._child.stop()
            self._child = None

    def kill(self) -> None:
        """End the broker as a power cut would."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def create_topic(self, name: str, *, partitions: int = 1, **config: str) -> str:
        """Create a topic and wait until it is there; return its name."""
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
        admin = self._admin()
        for created in admin.create_topics([topic]).values():
            created.result(30)
        return name

    def new_topic(self, *, partitions: int = 1, **config: str) -> str:
        """Create a topic with a name that no other test uses."""
        return self.create_topic(f"t-{uuid.uuid4().hex[:12]}", partitions=partitions, **config)

    @property
    def pid(self) -> int:
        assert self._child is not None, "the broker is not running"
        return self._child.pid

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    def _is_ready(self) -> bool:
        if not answers(self.port):
            return False
        try:
            admin = self._admin()
            return len(admin.list_topics(timeout=2).brokers) == 1
        except KafkaException:
            return False

    def _format(self) -> None:
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = [
            "kafka.tools.StorageTool",
            "format",
            "-t",
            cluster,
            "-c",
            str(self.folder / "server.properties"),
        ]
        done = subprocess.run(
            [*self._command, *tool], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _remove(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
