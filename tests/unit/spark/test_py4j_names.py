"""What is remembered of the JVM's names."""

from __future__ import annotations

from collections import Counter

from py4j import protocol
from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView

from penstock.spark.boot import py4j_names


class _Jvm:
    """A JVM that knows some classes and their members, and counts what it is asked."""

    converters = None

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.classes = {
            "Imported": "org.one.Imported",
            "org.apache.spark.sql.classic.Dataset": "org.apache.spark.sql.classic.Dataset",
        }
        self.gateway_property = type("Property", (), {"pool": None})

    def send_command(self, command: str) -> str:
        kind, how, name, *rest = command.split("\n")
        if kind != "r":
            return "yv"
        self.asked[f"{name}.{rest[0]}" if how == "m" else name] += 1
        if how == "m":
            return protocol.SUCCESS + (protocol.METHOD_TYPE if rest[0] == "ofRows" else "i1")
        return (
            protocol.SUCCESS_CLASS + self.classes[name] if name in self.classes else protocol.SUCCESS_PACKAGE
        )


def _view() -> tuple[_Jvm, JVMView]:
    jvm = _Jvm()
    py4j_names.remember(jvm)
    return jvm, JVMView(jvm, "default", id="rj")


def test_classes_and_methods_are_asked_for_once() -> None:
    jvm, view = _view()
    for _ in range(3):
        dataset = view.org.apache.spark.sql.classic.Dataset
        assert isinstance(dataset, JavaClass)
        assert isinstance(dataset.ofRows, JavaMember)
    assert jvm.asked == {
        "org.apache.spark.sql.classic.Dataset": 1,
        "org.apache.spark.sql.classic.Dataset.ofRows": 1,
    }


def test_what_may_change_is_asked_for_again() -> None:
    jvm, view = _view()
    for _ in range(2):
        assert view.org.apache.spark.sql.classic.Dataset.size == 1
        assert isinstance(view.com.acme, JavaPackage)
    assert jvm.asked["org.apache.spark.sql.classic.Dataset.size"] == 2
    assert jvm.asked["com.acme"] == 2
    jvm.classes["com.acme"] = "com.acme"
    assert isinstance(view.com.acme, JavaClass)


def test_an_import_changes_what_names_mean() -> None:
    jvm, view = _view()
    assert view.Imported._fqn == "org.one.Imported"
    jvm.classes["Imported"] = "org.other.Imported"
    assert view.Imported._fqn == "org.one.Imported"
    jvm.send_command(
        f"{protocol.JVMVIEW_COMMAND_NAME}{protocol.JVM_IMPORT_SUB_COMMAND_NAME}rj\norg.other.Imported\ne\n"
    )
    assert view.Imported._fqn == "org.other.Imported"
