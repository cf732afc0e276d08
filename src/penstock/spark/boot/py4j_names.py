"""What Py4J asks the JVM again and again: whether a name is a package, a class or a method. Its answers are remembered here.

`jvm.org.apache.spark.sql.classic.Dataset.ofRows` asks seven times before anything is called, and each answer but the
last two takes a search of all jars for a class that there is not. PySpark itself asks three times for each function
of a column.
"""

from __future__ import annotations

from typing import Any

from py4j import protocol

_QUESTION = protocol.REFLECTION_COMMAND_NAME
_NAME = _QUESTION + protocol.REFL_GET_UNKNOWN_SUB_COMMAND_NAME
_MEMBER = _QUESTION + protocol.REFL_GET_MEMBER_SUB_COMMAND_NAME
_IMPORT = protocol.JVMVIEW_COMMAND_NAME
_METHOD = protocol.SUCCESS + protocol.METHOD_TYPE
PACKAGES = frozenset(
    {
        "java",
        "java.io",
        "java.lang",
        "java.net",
        "java.util",
        "org",
        "org.apache",
        "org.apache.spark",
        "org.apache.spark.sql",
        "org.apache.spark.sql.catalyst",
        "org.apache.spark.sql.classic",
        "org.apache.spark.sql.execution",
        "scala",
    }
)
"""Of these nobody need ask: no jar brings a class of such a name."""


def remember(client: Any) -> None:
    """Let a client of a gateway ask its JVM once for each name."""
    ask = client.send_command
    answers: dict[str, str] = {}

    def send_command(command: str, *arguments: Any, **options: Any) -> Any:
        if command.startswith(_IMPORT):
            answers.clear()  # names may mean other classes now
        if not command.startswith(_QUESTION):
            return ask(command, *arguments, **options)
        answer = answers.get(command)
        if answer is None:
            answer = _known(command) or ask(command, *arguments, **options)
            if _lasts(command, answer):
                answers[command] = answer
        return answer

    client.send_command = send_command


def _known(command: str) -> str | None:
    if command.startswith(_NAME) and command[len(_NAME) :].partition("\n")[0] in PACKAGES:
        return str(protocol.SUCCESS_PACKAGE)
    return None


def _lasts(command: str, answer: str) -> bool:
    """Whether an answer stays true: classes and methods stay, the values of fields do not, and a package may be a
    class of a jar that comes later."""
    if command.startswith(_MEMBER):
        return bool(answer == _METHOD)
    return command.startswith(_NAME) and answer.startswith(protocol.SUCCESS_CLASS)
