"""Waits for asyncio: in a thread of the loop's executor, ended through a token when the task is cancelled."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Callable

from ._errors import CancelledError
from ._native import Token


async def run(
    member: Any, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], unwanted: Any = None
) -> Any:
    """Awaits a call of a reader or writer. What it returns to one who was cancelled goes to `unwanted`.

    That is decided in the thread or here, whoever comes second, and never by the loop: it may close before it hears.
    """
    token, lock = Token(), threading.Lock()
    cancelled, came = False, []

    def act() -> Any:
        try:
            result = call(*args, _token=token, **kwargs)
        except CancelledError:
            if cancelled:
                return None  # nobody asks any more
            raise
        with lock:
            if not cancelled:
                came.append(result)
                return result
        if unwanted is not None:
            unwanted(result)
        return None

    future = asyncio.get_running_loop().run_in_executor(None, act)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        with lock:
            cancelled = True
        token.cancel()
        member._wake()
        if came and unwanted is not None:
            unwanted(came.pop())
        raise
