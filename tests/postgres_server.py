"""A PostgreSQL server of Debian's packages on loopback, for as long as a test needs it."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class UnavailableError(Exception):
    """Why there is no server."""


@contextlib.contextmanager
def postgres_server() -> Iterator[str]:
    """The URL of an empty database; the server and its files are gone afterwards."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not programs:
        raise UnavailableError("no PostgreSQL server is installed (apt-get install postgresql)")
    bin_ = programs[-1].parent
    # Not pytest's folder: that one is closed to the user the server runs as.
    place = Path(tempfile.mkdtemp(prefix="sobgnn-postgres-"))
    who: dict[str, Any] = {"cwd": place, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    server = None
    try:
        if os.getuid() == 0:  # PostgreSQL refuses to run as root
            user = _unprivileged()
            os.chown(place, user.pw_uid, user.pw_gid)
            who |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        made = subprocess.run(
            [bin_ / "initdb", "-D", place / "data", "-A", "trust", "-U", "sobgnn", "--no-sync", "--locale=C"],
            check=False, timeout=300, **who,
        )  # fmt: skip
        if made.returncode:
            raise UnavailableError(f"initdb failed: {made.stderr.decode()[-300:]}")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        server = subprocess.Popen(
            [bin_ / "postgres", "-D", place / "data", "-p", str(port), "-c", "listen_addresses=127.0.0.1",
             "-c", f"unix_socket_directories={place}", "-c", "fsync=off"],
            **{**who, "stderr": subprocess.DEVNULL},
        )  # fmt: skip
        ready = [bin_ / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
        until = time.monotonic() + 180
        while subprocess.run(ready, check=False).returncode:
            if server.poll() is not None or time.monotonic() > until:
                raise UnavailableError("the PostgreSQL server did not start")
            time.sleep(0.2)
        yield f"postgresql://sobgnn@127.0.0.1:{port}/postgres"
    finally:
        if server is not None:
            server.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(5)
            if server.poll() is None:
                server.kill()
                server.wait()
        shutil.rmtree(place, ignore_errors=True)


def _unprivileged() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise UnavailableError("there is no user to run PostgreSQL as")
