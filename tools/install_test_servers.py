"""Install what the tests need beside Python packages: PostgreSQL, the jars of test servers and of all connectors, and the class archive.

What is there already is left alone, so that a second run takes no time. Exit code 2: something must be installed by hand.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from penstock import config
from penstock.errors import PenstockError
from penstock.spark.boot import archive_build, jars
from servers import installed
from servers.jar import LOCK, class_path

BY_HAND = """\
The tests need PostgreSQL, and only root can install it. As root, run one of these, then try again:
  Debian, Ubuntu:   apt-get install --no-install-recommends postgresql
  Fedora, RHEL:     dnf install postgresql-server
  Arch:             pacman -S postgresql"""


def main() -> int:
    """Install what is missing."""
    if installed.postgres_programs() is None and not install_postgres():
        print(BY_HAND, file=sys.stderr)
        return 2
    try:
        jars.ensure(jars.CONNECTORS, config.load())
        for name in LOCK:
            class_path(name)
        # Processes that tests start use it; made here, it is there for the first of them, and none is made beside them.
        if not archive_build.make(config.load()):
            print("no class archive: the tests run without one, and take longer", file=sys.stderr)
    except PenstockError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def install_postgres() -> bool:
    """Install Debian's package when we may; the package must not start a server of its own."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    print("installing PostgreSQL with apt-get", file=sys.stderr, flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for words in (("update", "-qq"), ("install", "-qq", "-y", "--no-install-recommends", "postgresql")):
        done = subprocess.run(
            ["apt-get", *words],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if done.returncode != 0:
            print(done.stdout.decode(errors="replace")[-2000:], file=sys.stderr)
            return False
    return installed.postgres_programs() is not None


if __name__ == "__main__":
    raise SystemExit(main())
