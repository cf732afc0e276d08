"""Checks of a script by Deno before rows come: its imports, its types, and whether it can be loaded."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.errors import ConfigError
from penstock.transforms.script.failure import not_loaded, without_paths
from penstock.transforms.script.process import Process, deno, environment
from penstock.transforms.script.program import Program

SECONDS = 60.0
_QUIET = ("--no-remote", "--no-npm", "--no-lock", "--quiet")
_TYPES = {"compilerOptions": {"strict": True, "noImplicitAny": False, "useUnknownInCatchVariables": False}}
"""Rows come without types, so that `function invoke(row)` is TypeScript too."""


def check_imports(program: Program) -> None:
    """Refuse a script that imports something, as Deno's own parser sees it; raises ConfigError."""
    with tempfile.TemporaryDirectory(prefix="penstock-script-") as name:
        folder = Path(name)
        program.write(folder)
        answer = _run(["info", "--json", "--no-config", *_QUIET, f"script/{program.file}"], folder)
    try:
        modules = json.loads(answer.stdout).get("modules", [])
    except ValueError:
        modules = []
    own: dict[str, Any] = next(
        (item for item in modules if item.get("specifier", "").endswith(f"/{program.file}")), {}
    )
    if "error" in own:
        raise not_loaded(f"error: {own['error']}", program.file)
    for dependency in own.get("dependencies", ()):
        start: dict[str, int] = next(
            (part["span"]["start"] for part in (dependency.get("code"), dependency.get("type")) if part), {}
        )
        where = f"{program.file}:{start.get('line', 0) + 1}:{start.get('character', 0) + 1}"
        raise ConfigError(
            f"the script imports '{dependency.get('specifier')}' ({where})",
            code="SCRIPT_IMPORT",
            where=where,
            hint="a script stands alone: it reads no files, packages or addresses; put all it needs into its text",
        )


def check_types(program: Program) -> None:
    """Refuse a script in TypeScript whose types do not fit; raises ConfigError with the first that does not."""
    with tempfile.TemporaryDirectory(prefix="penstock-script-") as name:
        folder = Path(name)
        program.write(folder)
        (folder / "deno.json").write_text(json.dumps(_TYPES), encoding="utf-8")
        answer = _run(["check", "--config", "deno.json", *_QUIET, f"script/{program.file}"], folder)
    if answer.returncode == 0:
        return
    lines = [line for line in answer.stderr.splitlines() if line.strip()]
    position = next(
        (line.rpartition("/")[2] for line in lines if line.strip().startswith("at file://")), None
    )
    text = next((line for line in lines if line.startswith("TS")), None)
    if text is None:
        raise not_loaded(answer.stderr, program.file)
    raise ConfigError(
        f"the types of the script do not fit: {without_paths(text)} ({position or program.file})",
        code="SCRIPT_TYPES",
        where=position or program.file,
    )


def check_loads(program: Program, *, memory: int) -> None:
    """Refuse a script that cannot be loaded, or whose own first lines fail; raises ConfigError."""
    nothing = pa.schema([])
    Process(Program(program.file, program.script, nothing, nothing, program.bigint), memory=memory).kill()


def _run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [deno(), *arguments],
            cwd=folder,
            env=environment(folder),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"Deno has not read the script after {SECONDS:.0f} s", code="SCRIPT_INVALID"
        ) from None
