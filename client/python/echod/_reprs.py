"""What handles say of themselves, on a line that is worth reading in a notebook."""

from __future__ import annotations

from typing import Sequence

_MOST = 8
_SEVERAL = {"batch": "batches", "leaf": "leaves"}


def count(n: int, what: str) -> str:
    """`1 sample`, `2 samples`."""
    return f"1 {what}" if n == 1 else f"{n} {_SEVERAL.get(what, what + 's')}"


def size(bytes: int) -> str:
    """`1.5 GiB`: to two digits or so."""
    number = float(bytes)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if number < 1024:
            break
        number /= 1024
    else:
        unit = "TiB"
    if unit == "bytes":
        return count(bytes, "byte")
    return f"{number:.1f} {unit}" if number < 100 else f"{number:.0f} {unit}"


def leaves(described: Sequence[str]) -> str:
    """The first few, and how many there are beyond these."""
    more = len(described) - _MOST
    return ", ".join(described[:_MOST]) + (f" and {count(more, 'leaf')}" if more > 0 else "")


def shown(
    noun: str,
    number: int,
    table: str,
    samples: int | None,
    bytes: int,
    views: int | None,
    copied: bool,
    described: Sequence[str],
) -> str:
    """A batch or a value; of one that was given back there are no views, not even none."""
    if copied:
        state = "copied"
    elif views is None:
        state = "released"
    else:
        state = f"held, and {count(views, 'tree')} of arrays over it" if views else "held"
    holds = "" if samples is None else f"{count(samples, 'sample')}, "
    return f"<echod.{noun.title().replace(' ', '')} {number} of {table!r}: {holds}{size(bytes)}, {state}; {leaves(described)}>"
