"""The console scripts: the same code as the programs of the Rust workspace."""

from __future__ import annotations

import sys


def echod() -> None:
    """Is `echod`."""
    from ._native import run_daemon

    sys.exit(run_daemon(["echod", *sys.argv[1:]]))


def echoctl() -> None:
    """Is `echoctl`."""
    from ._native import run_ctl

    sys.exit(run_ctl(["echoctl", *sys.argv[1:]]))
