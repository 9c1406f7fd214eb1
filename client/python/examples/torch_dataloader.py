"""Trains a torch model from a table, through a DataLoader: the reader as an IterableDataset.

    python client/python/examples/torch_dataloader.py [--workers 2] [--batches 200] [--loader-workers 0] [--socket PATH]

Worker processes append points near a plane; the trainer finds the plane. What it is about is `Batches`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import multiprocessing
import os
import signal
import sys
from typing import Any, Iterator

import echod
import numpy as np

try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    print("skipped: torch is not installed")
    sys.exit(0)

PLANE = np.array([0.5, -1.0, 2.0, 0.25], np.float32)
SAMPLE = {"x": np.zeros(4, np.float32), "y": np.float32(0)}
BATCH_SIZE = 256
CAPACITY = 8  # batches


class Batches(torch.utils.data.IterableDataset):
    """The batches of a table, as trees of tensors over the memory where they were written.

    Use it with `batch_size=None`, since the batches are made already, and without `pin_memory`, which copies: that is
    what `table.reader(pin=True)` is for. Tensors are read-only, and keep their batch: to keep them, clone them.

    Leave `num_workers` at 0. A DataLoader's workers read ahead and in parallel, which the ring and those who fill it do
    already, and every tensor would be copied once more on its way out of the worker. Where there is so much to do for
    each batch that it is worth that, they must be spawned, as in `main` below: the table is pickled to each, which gets a
    reader and batches of its own. In a forked one everything raises `ForkedError`.
    """

    def __init__(self, table: echod.Table, prefetch: int = 2) -> None:
        self.table, self.prefetch = table, prefetch

    def __iter__(self) -> Iterator[Any]:
        for batch in self.table.reader(self.prefetch):
            yield batch.torch()


def work(table: echod.Table, seed: int) -> None:
    """A worker: appends points, until the trainer drops the table."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the trainer
    random = np.random.default_rng(seed)
    # It may be dropped before a late one has begun, and in the middle of what is appended; the daemon goes soon after.
    ended = echod.ClosedError, echod.GoneError, echod.NoSuchTableError, echod.PartlyError, echod.ConnectError, echod.VersionError
    with contextlib.suppress(*ended):
        writer = table.writer()
        while True:
            x = random.normal(size=(64, 4)).astype(np.float32)
            noise = random.normal(scale=0.1, size=64).astype(np.float32)
            writer.append_many({"x": x, "y": x @ PLANE + noise})


def main() -> int:
    arguments = parse()
    daemon = echod.connect(arguments.socket) if arguments.socket else echod.local()  # which ends with this process
    table = daemon.create_table(f"plane-{os.getpid()}", example=SAMPLE, batch_size=BATCH_SIZE, capacity=CAPACITY)
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=work, args=(table, seed), daemon=True) for seed in range(arguments.workers)]
    for worker in workers:
        worker.start()

    loader = torch.utils.data.DataLoader(
        Batches(table),
        batch_size=None,
        num_workers=arguments.loader_workers,
        multiprocessing_context="spawn" if arguments.loader_workers else None,
    )
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step, batch in enumerate(itertools.islice(loader, arguments.batches)):
        loss = torch.nn.functional.mse_loss(model(batch["x"])[:, 0], batch["y"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"batch {step}: loss {loss.item():.4f}", flush=True)
    del batch, loader  # and with them the views
    table.drop()
    for worker in workers:
        worker.join(30)  # before the daemon goes, which they may still ask

    error = float((model.weight.detach()[0] - torch.from_numpy(PLANE)).abs().max())
    print(f"{step + 1} batches, loss {loss.item():.6f}; the plane is off by {error:.4f}")
    return 0 if error < 0.05 else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="worker processes (default: %(default)s)")
    parser.add_argument("--batches", type=int, default=200, metavar="N", help="to learn from (default: %(default)s)")
    parser.add_argument(
        "--loader-workers", type=int, default=0, metavar="N", help="the DataLoader's num_workers (default: %(default)s)"
    )
    parser.add_argument("--socket", metavar="PATH", help="the daemon's socket (default: a daemon of its own)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
