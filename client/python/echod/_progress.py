"""How far something long is, for people who look: by tqdm if it is installed, else as a line on the terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any, Callable, Iterator

from ._reprs import size

# What is done sooner is not worth a look.
_SOON = 0.5


@contextlib.contextmanager
def shown(what: str) -> Iterator[Callable[[int, int], object] | None]:
    """What is to be told how far it is; None where nobody looks: neither a terminal nor a notebook."""
    if not (_is_terminal() or "ipykernel" in sys.modules):
        yield None
        return
    bar: Any = None
    started = time.monotonic()

    def told(done: int, total: int) -> None:
        nonlocal bar
        if bar is None:
            if done >= total or time.monotonic() - started < _SOON:
                return
            bar = _bar(what, total)
        bar.update(done - bar.n)

    try:
        yield told
    finally:
        if bar is not None:
            bar.close()


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _bar(what: str, total: int) -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _Line(what, total)
    return tqdm(desc=what, total=total, unit="B", unit_scale=True, unit_divisor=1024)


class _Line:
    """What is used of tqdm."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.n = what, total, 0

    def update(self, more: int) -> None:
        self.n += more
        print(f"\r{self.what}: {size(self.n)} of {size(self.total)} ", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        print(file=sys.stderr)
