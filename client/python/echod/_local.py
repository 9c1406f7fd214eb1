"""A daemon of one's own."""

from __future__ import annotations

import atexit
import difflib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from typing import TYPE_CHECKING, Any

from . import _errors, _native
from ._connection import Connection, Table, connect

if TYPE_CHECKING:
    from ._replay import ReplayTable

# Only the native module: numpy and optree take longer to import than the daemon to start.
_CHILD = """
import importlib.util, shutil, sys
spec = importlib.util.spec_from_file_location("echod._native", sys.argv[1])
native = importlib.util.module_from_spec(spec)
spec.loader.exec_module(native)
code = native.run_daemon(["echod", *sys.argv[4:]], int(sys.argv[2]))
if code == 0:
    shutil.rmtree(sys.argv[3], ignore_errors=True)
sys.exit(code)
"""


# What `echod --help` has, but for the socket, which is this module's.
_SETTINGS = frozenset(
    (
        "config", "drain_timeout", "hello_timeout", "host_budget", "log", "log_format", "max_calls", "max_clients", "max_leases",
        "max_pending", "max_tables", "prefault_threads", "uid_budget",
    )
)  # fmt: skip


def local(*, timeout: float = 10.0, **config: Any) -> Local:
    """Starts a private daemon, which ends with this process, whatever ends it.

    `config` are its settings by their names, such as `host_budget="1 GiB"` (`echod --help` has all). Its socket is in a
    directory of its own that nobody else may enter. A context manager; `close()` ends it before.
    """
    return Local(timeout=timeout, **config)


class Local:
    """A private daemon. `connect()` gives a connection; `create_table` and what is beside it use one that is made once."""

    def __init__(self, *, timeout: float = 10.0, **config: Any) -> None:
        for name in config:
            if name not in _SETTINGS:
                near = difflib.get_close_matches(name, _SETTINGS, 1)
                known = f"did you mean {near[0]!r}?" if near else "there are " + ", ".join(sorted(_SETTINGS))
                raise TypeError(f"local() has no setting {name!r}: {known}")
        self._directory = tempfile.mkdtemp(prefix="echod-")
        self.path = os.path.join(self._directory, "echod.sock")
        self._connection: Connection | None = None
        log = os.path.join(self._directory, "log")
        settings = {"drain_timeout": "500ms", "log": "warn", **config, "socket": self.path}
        arguments = [f"--{key.replace('_', '-')}={value}" for key, value in settings.items()]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("ECHO_")}
        # A file of settings of the user's is not for this one.
        environment["XDG_CONFIG_HOME"] = self._directory
        command = [sys.executable, "-I", "-S", "-c", _CHILD, _native.__file__, str(os.getpid()), self._directory]
        with open(log, "wb") as errors:
            self._process = subprocess.Popen(
                [*command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                env=environment,
                # Ctrl-C in a terminal is for this process, which ends the daemon in its own time.
                start_new_session=True,
            )
        self._end = weakref.finalize(self, _end, self._process, self._directory, os.getpid())
        # `finalize` runs at exit as well; this keeps it before the interpreter's own end.
        atexit.register(self._end)
        self._wait(log, timeout)

    def _wait(self, log: str, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not _listens(self.path):
            if self._process.poll() is not None or time.monotonic() > deadline:
                with open(log, errors="replace") as said:
                    text = said.read()[-2000:].strip()
                self.close()
                raise _errors.ConnectError(
                    f"the daemon did not start: {text or 'it said nothing'}", path=self.path
                )
            time.sleep(0.002)

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    def connect(self, *, name: str | None = None, timeout: float = 30.0) -> Connection:
        """A connection to it."""
        return connect(self.path, name=name, timeout=timeout)

    @property
    def connection(self) -> Connection:
        """A connection to it that is made once."""
        if self._connection is None:
            self._connection = self.connect()
        return self._connection

    def create_table(self, name: str, **spec: Any) -> Table:
        """As `Connection.create_table`."""
        return self.connection.create_table(name, **spec)

    def create_latest(self, name: str, **spec: Any) -> Table:
        """As `Connection.create_latest`."""
        return self.connection.create_latest(name, **spec)

    def create_replay(self, name: str, **spec: Any) -> ReplayTable:
        """As `Connection.create_replay`."""
        return self.connection.create_replay(name, **spec)

    def table(self, name: str, **options: Any) -> Table:
        """As `Connection.table`."""
        return self.connection.table(name, **options)

    def tables(self) -> list[str]:
        """As `Connection.tables`."""
        return self.connection.tables()

    def drop_table(self, name: str) -> None:
        """As `Connection.drop_table`."""
        self.connection.drop_table(name)

    def close(self) -> None:
        """Ends it. Waits for clients for half a second; what they have mapped stays theirs."""
        self._connection = None
        atexit.unregister(self._end)
        self._end()

    def __enter__(self) -> Local:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        ended = self._process.poll()
        state = f"process {self._process.pid}" if ended is None else "ended"
        return f"<echod.Local at {self.path}: {state}>"


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
        try:
            asking.connect(path)
        except OSError:
            return False
    return True


def _end(process: subprocess.Popen[bytes], directory: str, owner: int) -> None:
    if os.getpid() != owner:
        return  # a forked child has inherited this, and the daemon is not its own
    for number, patience in ((signal.SIGTERM, 2.0), (signal.SIGTERM, 2.0), (signal.SIGKILL, 5.0)):
        if process.poll() is None:
            process.send_signal(number)
            try:
                process.wait(patience)
            except subprocess.TimeoutExpired:
                continue
    shutil.rmtree(directory, ignore_errors=True)
