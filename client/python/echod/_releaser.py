"""Gives batches back whose events have happened, when nobody calls `next` meanwhile."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

_EVERY = 0.001

_lock = threading.Lock()
_watched: list[Any] = []
_running = False


def _forget() -> None:
    global _lock, _running
    # Whoever held the lock is not in the child, and what the parent has pending is the parent's.
    _lock, _running = threading.Lock(), False
    _watched.clear()


os.register_at_fork(after_in_child=_forget)


def watch(pending: Any) -> None:
    """Asks these events every millisecond, in a thread, until all have happened."""
    global _running
    with _lock:
        if not any(other is pending for other in _watched):
            _watched.append(pending)
        if not _running:
            threading.Thread(target=_run, name="echod-releaser", daemon=True).start()
            _running = True


def _run() -> None:
    global _running
    while True:
        time.sleep(_EVERY)
        with _lock:
            pendings = list(_watched)
        for pending in pendings:
            # Quietly: what fails is told to whoever calls `next`; here there is nobody to tell.
            if pending.poll(True) == 0:
                with _lock:
                    # Looked at anew: one that was added meanwhile found itself watched.
                    _watched[:] = [other for other in _watched if other is not pending or len(other)]
        with _lock:
            if not _watched:
                _running = False
                return
