"""Draw lines as an SVG file; runs in the environment that has matplotlib."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "penstock"

from matplotlib import pyplot as plt  # noqa: E402  # the backend is chosen first


def main(options: dict[str, object]) -> None:
    figure, axes = plt.subplots(figsize=(7, 4))
    for name, values in dict(options["lines"]).items():  # type: ignore[call-overload]
        axes.plot(options["x"], values, marker="o", markersize=3, linewidth=1, label=name)
    axes.set_xscale(str(options.get("xscale", "log")))
    axes.set_yscale(str(options.get("yscale", "linear")))
    axes.set_ylim(bottom=0 if options.get("yscale") != "log" else None)
    axes.set_xlabel(str(options["xlabel"]))
    axes.set_ylabel(str(options["ylabel"]))
    axes.legend(fontsize=7)
    axes.grid(alpha=0.3)
    figure.tight_layout()
    path = Path(str(options["path"]))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    print(json.dumps({"path": path.name}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
