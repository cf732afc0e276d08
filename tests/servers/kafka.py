"""A Kafka broker: one node in KRaft mode, from Maven's jars."""

from __future__ import annotations

import base64
import subprocess
import uuid
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # not in its __all__

from servers import jar
from servers.certificate import write_certificate
from servers.child import Child, answers, free_port, spawn
from servers.server import Server

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},SECURE://127.0.0.1:{secure},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SECURE://127.0.0.1:{secure}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
listener.name.secure.sasl.enabled.mechanisms=PLAIN
listener.name.secure.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  user_{user}="{password}";
listener.name.secure.ssl.keystore.type=PEM
listener.name.secure.ssl.keystore.location={folder}/broker.pem
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


class Broker(Server):
    """A broker whose topics outlive `stop` and `kill`, until the `with` block ends.

    with Broker() as broker:
        broker.create_topic("orders", partitions=2)
    """

    name = "kafka"
    user = "ann"
    password = "it's a s3cret; or so"

    def __init__(self) -> None:
        super().__init__()
        self.controller, secure = free_port(), free_port()
        self.secure_servers = f"127.0.0.1:{secure}"
        """The listener with TLS, for a user with a password."""
        self.authority = self.folder / "authority.pem"
        write_certificate(self.folder / "broker.pem", authority=self.authority)
        self.bootstrap_servers = f"127.0.0.1:{self.port}"
        self._command = [
            *jar.java(memory="512m"),
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}",
            *("-cp", jar.class_path("kafka")),
        ]
        (self.folder / "log4j2.properties").write_text(LOG4J)
        (self.folder / "server.properties").write_text(
            PROPERTIES.format(
                port=self.port,
                secure=secure,
                controller=self.controller,
                folder=self.folder,
                user=self.user,
                password=self.password,
            )
        )

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

    def _spawn(self, log: Path) -> Child:
        return spawn(
            [*self._command, "kafka.Kafka", self.folder / "server.properties"], log=log, cwd=self.folder
        )

    def _prepare(self) -> None:
        random = uuid.uuid4().bytes
        # With its first bit off, an id does not begin with a dash, which the tool would take for an option.
        cluster = base64.urlsafe_b64encode(bytes([random[0] & 0x7F]) + random[1:]).decode().rstrip("=")
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
