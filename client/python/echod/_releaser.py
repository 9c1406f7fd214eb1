"""Gives batches back whose events have happened, when nobody calls `next` meanwhile."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

_EVERY = 0.001

_lock = threading.Lock()
_watched: list[Any] = []
_running_in: int | None = None


def watch(pending: Any) -> None:
    """Asks these events every millisecond, in a thread, until all have happened."""
    global _running_in
    with _lock:
        if not any(other is pending for other in _watched):
            _watched.append(pending)
        if _running_in != os.getpid():
            _running_in = os.getpid()
            threading.Thread(target=_run, name="echod-releaser", daemon=True).start()


def _run() -> None:
    global _running_in
    while True:
        time.sleep(_EVERY)
        with _lock:
            pendings = list(_watched)
        for pending in pendings:
            try:
                left = pending.poll()
            except Exception:  # whoever calls `next` is told; here there is nobody to tell
                left = len(pending)
                time.sleep(0.1)
            if left == 0:
                with _lock:
                    _watched[:] = [other for other in _watched if other is not pending]
        with _lock:
            if not _watched:
                _running_in = None
                return
