"""Workers and a trainer, each a process: python client/python/examples/workers.py [SAMPLES of each worker]"""

import multiprocessing
import sys

import echod
import numpy as np

SAMPLE = {"obs": np.zeros(4, np.float32), "reward": np.float32(0)}


def work(table, samples):
    random = np.random.default_rng()
    with table.writer() as writer:  # which finishes it at the end
        for _ in range(samples):
            writer.append({"obs": random.normal(size=4).astype(np.float32), "reward": 1.0})


def main(samples=10_000, workers=2):
    spawn = multiprocessing.get_context("spawn")  # a forked child has nothing of the table
    with echod.local() as daemon:  # or echod.connect(), where `echod` runs
        table = daemon.create_table("rollouts", example=SAMPLE, batch_size=256, capacity=8)
        keep = table.writer()  # so that the table does not end before the last worker has come
        for _ in range(workers):
            spawn.Process(target=work, args=(table, samples), daemon=True).start()
        reader, rewards = table.reader(prefetch=2), []
        for _ in range(workers * samples // table.batch_size):
            batch = reader.next(timeout=60)  # a TimeoutError where the workers have crashed; table.why() says more
            rewards += batch.data["reward"].tolist()
        keep.finish()  # and what is left comes when the workers have finished, in a batch that may be short
        for batch in reader:
            rewards += batch.data["reward"].tolist()
    print(f"{len(rewards)} samples of {workers} workers, rewards {sum(rewards):.0f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
