"""The port: where clients learn which daemon and which table are the server's.

Whoever connects is sent a line of JSON, and that is all: no sample goes this way. It listens on the loopback address alone.
What it tells opens nothing, since the daemon's directory is its user's alone; and a client goes to no other user's daemon,
since anybody may listen on a port.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
import time
import weakref
from typing import NamedTuple

from ..._errors import ConnectError, Error

_MAGIC = "echod.compat.idecho"
_LOOPBACK = "127.0.0.1"
_TIMEOUT = 10.0
_MOST = 64 << 10
# There may be more of it soon.
_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
# What id-echo's own server greets with.
_IDECHO = b"ECHO"


class RemoteHostError(Error, ValueError):
    """`host` is another machine. echo works on one."""

    host: str


class Place(NamedTuple):
    """A table of a daemon."""

    socket: str
    table: str


class Port:
    """Tells on a port of this machine which table is meant, until it is closed or nobody has it any more."""

    def __init__(self, number: int, place: Place) -> None:
        listener = socket.create_server((_LOOPBACK, number), backlog=1024)
        self.number: int = listener.getsockname()[1]
        said = json.dumps({"for": _MAGIC, "socket": place.socket, "table": place.table}).encode() + b"\n"
        threading.Thread(target=_answer, args=(listener, said), name="echod-port", daemon=True).start()
        self.close = weakref.finalize(self, _end, listener, os.getpid())


def _answer(listener: socket.socket, said: bytes) -> None:
    while True:
        try:
            asking, _ = listener.accept()
        except ConnectionError:
            continue  # one that did not wait
        except OSError as error:
            if error.errno not in _SCARCE:
                return  # closed
            time.sleep(0.1)
            continue
        with asking:
            try:
                # As much as this fits into a socket that is new.
                asking.sendall(said)
            except OSError:
                pass


def _end(listener: socket.socket, owner: int) -> None:
    if os.getpid() == owner:  # a forked child has the same listener, which is not its own to end
        # So that who waits in `accept` comes back.
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def ask(host: str, port: int) -> Place:
    """Which table is meant by that port of this machine."""
    if not _is_here(host):
        raise RemoteHostError(
            f"{host} is another machine, and echo works on one: run the client where the server runs", host=host
        )
    with socket.create_connection((_LOOPBACK, port), timeout=_TIMEOUT) as asking:
        said = b""
        while not said.endswith(b"\n") and len(said) < _MOST and not said.startswith(_IDECHO):
            try:
                more = asking.recv(4096)
            except TimeoutError:
                break
            if not more:
                break
            said += more
    try:
        told = json.loads(said) if said.endswith(b"\n") else {}
    except ValueError:
        told = {}
    if not isinstance(told, dict) or told.get("for") != _MAGIC:
        who = "a server of id-echo's own" if said.startswith(_IDECHO) else "something else"
        raise ConnectError(f"no server of echod.compat.idecho has port {port}, but {who}", path=f"{host}:{port}")
    place = Place(told["socket"], told["table"])
    owner = os.stat(place.socket).st_uid
    if owner != os.geteuid():
        raise ConnectError(f"the server at port {port} is of user {owner}, and this is {os.geteuid()}", path=place.socket)
    return place


def _is_here(host: str) -> bool:
    """Whether the name is this machine's: whether one of its addresses can be bound."""
    for family, kind, _, _, address in socket.getaddrinfo(host or None, 0, type=socket.SOCK_DGRAM):
        try:
            with socket.socket(family, kind) as trying:
                trying.bind(address)
        except OSError:
            continue
        return True
    return False
