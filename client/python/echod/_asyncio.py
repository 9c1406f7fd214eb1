"""Waits for asyncio: each in a thread of its own, ended through a token when the task is cancelled.

Not in the loop's executor, whose threads are as few as the processor's cores: where all of them wait for samples, the call
that would write some never gets one.
"""

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
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def told(result: Any, error: BaseException | None) -> None:
        if future.done():
            return  # cancelled
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def act() -> None:
        result: Any = None
        failed: BaseException | None = None
        try:
            if cancelled:
                return  # before it began
            result = call(*args, _token=token, **kwargs)
        except CancelledError as error:
            if cancelled:
                return  # nobody asks any more
            failed = error
        except BaseException as error:  # noqa: BLE001
            failed = error
        with lock:
            is_wanted = not cancelled
            if is_wanted and failed is None:
                came.append(result)
        try:
            if is_wanted:
                loop.call_soon_threadsafe(told, result, failed)
        except RuntimeError:  # the loop is closed
            with lock:
                is_wanted = not came
                came.clear()
        if not is_wanted and failed is None and unwanted is not None:
            unwanted(result)
        result = failed = None  # an error's traceback knows this frame

    threading.Thread(target=act, name="echod-wait").start()
    try:
        return await future
    except BaseException:
        # Cancelled, or nobody waits for this any more; or the call itself failed, and nothing of it is left.
        with lock:
            cancelled = True
            left, came = came, []
        token.cancel()
        if not future.done() or future.cancelled():
            member._wake()
        if left and unwanted is not None:
            unwanted(left.pop())
        raise
