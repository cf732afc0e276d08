"""What the benchmarks share: percentiles, the machine, environments for peers, and the tables of the README."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from penstock import config
from penstock.spark.boot.defaults import this_machine

HERE = Path(__file__).parent
PEERS = {
    "pathway": ("pathway==0.33.*", "pyarrow", "numpy"),
    "krishiv": ("krishiv==0.1.0", "pyarrow", "numpy"),
    "duckdb": ("duckdb==1.4.*", "pyarrow", "numpy"),
    "flink": ("apache-flink==2.0.2",),
    "quix": ("quixstreams[postgresql]==3.28.*",),
    "plots": ("matplotlib==3.10.*",),
    "tpchgen": ("tpchgen-cli==2.*", "pyarrow"),
}


@dataclass(frozen=True, slots=True)
class Times:
    """Percentiles of the milliseconds of ticks."""

    p50: float
    p95: float
    p99: float

    def __str__(self) -> str:
        return " / ".join(shown(value) for value in (self.p50, self.p95, self.p99))


def times(milliseconds: Sequence[float]) -> Times:
    """The percentiles of some ticks."""
    p50, p95, p99 = np.percentile(milliseconds, [50, 95, 99])
    return Times(float(p50), float(p95), float(p99))


def shown(value: float) -> str:
    """Milliseconds with three digits."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def environment(peer: str) -> Path:
    """Return the Python of a peer's own virtual environment, made on first use; raises CalledProcessError."""
    folder = config.load().home / "bench" / peer
    python = folder / "bin" / "python"
    done = folder / ".installed"
    if not done.exists():
        print(f"installing {', '.join(PEERS[peer])} (once)", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PEERS[peer]],
            check=True,
            capture_output=True,
            text=True,
        )
        done.touch()
    return python


def run_peer(peer: str, script: str, options: dict[str, Any], *, timeout: float) -> dict[str, Any]:
    """Run a script in a peer's environment; its last line is JSON. What fails is returned as {"error": ...}."""
    return _run(lambda: environment(peer), script, options, timeout=timeout, path=str(HERE))


def run_here(script: str, options: dict[str, Any], *, timeout: float) -> dict[str, Any]:
    """Run a script of `peers/` in a process of its own with this Python, as `run_peer` does it."""
    path = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
    return _run(lambda: Path(sys.executable), script, options, timeout=timeout, path=path)


def _run(
    python: Callable[[], Path], script: str, options: dict[str, Any], *, timeout: float, path: str
) -> dict[str, Any]:
    try:
        done = subprocess.run(
            [str(python()), str(HERE / "peers" / script), json.dumps(options)],
            check=True,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=os.environ | {"PYTHONPATH": path},
        )
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {timeout:.0f} s"}
    except subprocess.CalledProcessError as error:
        if error.returncode < 0:
            return {"error": f"killed by signal {-error.returncode}"}
        lines = [line for line in (error.stderr or error.stdout or "").splitlines() if line.strip()]
        messages = [line for line in lines if not line.startswith((" ", "\t", "[")) and "Warning" not in line]
        causes = [line.partition(": ")[2] for line in messages if line.startswith("Caused by: ")]
        return {"error": (causes or messages or lines or ["no message"])[-1][:160]}


def machine() -> str:
    """What figures were measured on."""
    here = this_machine()
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return (
        f"{model}, {here.cores} cores, {here.memory / (1 << 30):.0f} GB, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, PySpark {version('pyspark')}, PyArrow {version('pyarrow')}, "
        f"NumPy {version('numpy')}; load average when it started {os.getloadavg()[0]:.1f}"
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, the first column to the left."""
    lines = [
        "| " + " | ".join(head) + " |",
        "|" + "|".join("---" if at == 0 else "---:" for at in range(len(head))) + "|",
    ]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def publish(section: str, text: str) -> None:
    """Print a result, and put it into its section of the README (between its two marks)."""
    print(text, flush=True)
    readme = HERE / "README.md"
    page = readme.read_text(encoding="utf-8")
    begin, end = f"<!-- {section} -->\n", f"<!-- end of {section} -->\n"
    if begin not in page or end not in page:
        raise ValueError(f"the README has no section '{section}'")
    before, _, rest = page.partition(begin)
    readme.write_text(before + begin + text + "\n" + end + rest.partition(end)[2], encoding="utf-8")


def plot(name: str, drawing: dict[str, Any]) -> None:
    """Draw lines (`x`, `lines` by name, labels) as plots/<name>.svg with the plot environment's matplotlib."""
    drawn = run_peer(
        "plots", "draw.py", {"path": str(HERE / "plots" / f"{name}.svg"), **drawing}, timeout=300
    )
    if "error" in drawn:
        print(f"no plot {name}: {drawn['error']}", file=sys.stderr)


def remember(benchmark: str, found: dict[str, Any]) -> dict[str, Any]:
    """Add results to those of earlier runs of a benchmark on this machine, so that it can be run case by case."""
    path = config.load().home / "bench" / "results" / f"{benchmark}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    known |= found
    path.write_text(json.dumps(known, indent=1), encoding="utf-8")
    return known


def median_of(action: Callable[[], float], runs: int) -> float:
    """The median of what several calls measure, after one that does not count."""
    action()
    return float(np.median([action() for _ in range(runs)]))
