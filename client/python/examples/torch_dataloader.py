"""A table as a torch IterableDataset: its batches are tensors over shared memory.

    python client/python/examples/torch_dataloader.py

Without torch it says so and does nothing.
"""

import multiprocessing
import sys

import echod
import numpy as np

try:
    import torch
except ImportError:
    torch = None

SAMPLE = {"x": np.zeros(8, np.float32), "y": np.float32(0)}


def dataset(reader):
    """Batches as tensors. A tensor keeps its batch: it goes back to the workers when the last one is gone."""

    class Batches(torch.utils.data.IterableDataset):
        def __iter__(self):
            for batch in reader:
                yield batch.torch()

    return Batches()


def work(table, seed, n):
    rng = np.random.default_rng(seed)
    slope = np.arange(8, dtype=np.float32)
    with table.writer() as writer:
        for _ in range(n):
            x = rng.normal(size=8).astype(np.float32)
            writer.append({"x": x, "y": np.float32(x @ slope)})


def main():
    if torch is None:
        print("skipped: torch is not installed")
        return
    with echod.local() as daemon:
        table = daemon.create_table("linear", example=SAMPLE, batch_size=64, capacity=8)
        keep = table.writer()
        spawn = multiprocessing.get_context("spawn")
        workers = [spawn.Process(target=work, args=(table, seed, 6400)) for seed in range(2)]
        for worker in workers:
            worker.start()
        # The table is the batching: batch_size=None. In this process, num_workers=0: a loader's process would have to copy
        # what it read to this one, and the processes that play are others anyway.
        loader = torch.utils.data.DataLoader(dataset(table.reader(prefetch=2)), batch_size=None, num_workers=0)
        model = torch.nn.Linear(8, 1)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        for step, data in enumerate(loader, 1):
            loss = torch.nn.functional.mse_loss(model(data["x"])[:, 0], data["y"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            del data
            if step == 200:
                break
        for worker in workers:
            worker.join()
        keep.finish()
        print(f"{step} batches, loss {loss.item():.6f}")
        if loss.item() > 0.1:
            sys.exit("it has not learnt")


if __name__ == "__main__":
    main()
