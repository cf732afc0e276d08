"""`penstock doctor`: look at this machine and say what to do about each finding."""

from __future__ import annotations

import sys

from penstock import config
from penstock.cli.commands.doctor_check import CHECKS, Finding, Status
from penstock.cli.main import DONE, FAILED
from penstock.cli.output import Format, Output, write_rows
from penstock.spark.boot.defaults import SparkSetting, effective

COLORS = {Status.OK: "32", Status.WARN: "33", Status.FAIL: "31"}


def doctor(output: Output = Format.TABLE) -> int:
    """Check this machine and say what to do.

    Looks at Python, Java, Spark, memory, the cache, connector jars, the network and ports, and lists the Spark
    settings that a session gets, each with its origin. Exit code 1 means that something is broken.

    \b
    Examples:
      penstock doctor
      penstock doctor --output json
    """
    settings = config.load()
    findings = [finding for check in CHECKS for finding in check(settings)]
    chosen = list(effective(settings).values())
    if output is Format.TABLE:
        _print(findings, chosen)
    else:
        write_rows(
            [*map(_as_row, findings), *map(_setting_as_row, chosen)],
            ["check", "status", "detail", "hint"],
            output=output,
        )
    return FAILED if any(finding.status is Status.FAIL for finding in findings) else DONE


def _print(findings: list[Finding], chosen: list[SparkSetting]) -> None:
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        print(f"{_colored(finding.status)}  {finding.name:<{width}}  {finding.detail}")
        if finding.hint:
            print(f"{'':6}{'':<{width}}→ {finding.hint}")
    bad = [finding for finding in findings if finding.status is not Status.OK]
    print()
    print("Spark settings of a session:")
    write_rows(
        [
            {"setting": item.key, "value": item.value, "from": item.origin, "why": item.reason or None}
            for item in chosen
        ],
        ["setting", "value", "from", "why"],
    )
    print()
    print("all is well" if not bad else f"{len(bad)} of {len(findings)} checks found something")


def _colored(status: Status) -> str:
    text = f"{status.value:<4}"
    return f"\033[{COLORS[status]}m{text}\033[0m" if sys.stdout.isatty() and config.wants_color() else text


def _as_row(finding: Finding) -> dict[str, str | None]:
    return {
        "check": finding.name,
        "status": finding.status.value,
        "detail": finding.detail,
        "hint": finding.hint,
    }


def _setting_as_row(item: SparkSetting) -> dict[str, str | None]:
    detail = f"{item.value} (from {item.origin})"
    return {"check": item.key, "status": Status.OK.value, "detail": detail, "hint": item.reason or None}
