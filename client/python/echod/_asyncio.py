"""Waits for asyncio: in a thread of the loop's executor, ended through a token when the task is cancelled."""

from __future__ import annotations

import asyncio
from typing import Any, Callable

from ._native import Token


async def run(
    member: Any, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], unwanted: Any = None
) -> Any:
    """Awaits a call of a reader or writer. What it returns after a cancellation goes to `unwanted`."""
    token = Token()
    future = asyncio.get_running_loop().run_in_executor(None, lambda: call(*args, _token=token, **kwargs))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        token.cancel()
        member._wake()

        def done(future: asyncio.Future[Any]) -> None:
            if not future.cancelled() and future.exception() is None and unwanted is not None:
                unwanted(future.result())

        future.add_done_callback(done)
        raise
