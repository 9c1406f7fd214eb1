"""What is sent: the workloads of `cargo xtask bench`, by the same names."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Workload:
    """A kind of sample, and the table for it."""

    name: str
    leaves: tuple[tuple[str, str, tuple[int, ...]], ...]
    batch: int
    capacity: int

    @property
    def sample_bytes(self):
        return sum(np.dtype(dtype).itemsize * int(np.prod(shape)) for _, dtype, shape in self.leaves)

    def example(self):
        return {name: np.zeros(shape, dtype) for name, dtype, shape in self.leaves}

    def samples(self, scalars=True):
        """Samples that are there before the measurement begins, as many as stay in a core's cache.

        With `scalars`, leaves of no dimension are numpy's scalars, as an environment returns them, and else 0-d arrays.
        """
        n = max(1, min(1024, 128 * 1024 // self.sample_bytes))
        rng = np.random.default_rng(0)
        made = []
        for _ in range(n):
            sample = {}
            for name, dtype, shape in self.leaves:
                array = rng.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)
                sample[name] = array[()] if scalars else np.asarray(array)
            made.append(sample)
        return made

    def stacks(self, many):
        """The same, in pieces of `many` samples with a leading axis."""
        samples = self.samples()
        pieces = [samples[i : i + many] for i in range(0, len(samples) - many + 1, many)]
        return [{name: np.stack([s[name] for s in piece]) for name, _, _ in self.leaves} for piece in pieces]


TINY = Workload("tiny", (("obs", "float32", (4,)), ("reward", "float32", ())), 256, 64)
ATARI = Workload(
    "atari",
    (("obs", "uint8", (84, 84, 4)), ("action", "int32", ()), ("reward", "float32", ()), ("done", "bool", ())),
    256,
    16,
)
LARGE = Workload("large", (("obs", "float32", (512, 512)),), 32, 4)
LEAVES_10 = Workload("ten", tuple((f"leaf{i}", "float32", (4,)) for i in range(10)), 256, 64)
STAMP = Workload("stamp", (("sent", "int64", (1,)),), 1, 16)


def look(batch):
    """What every reader does with a batch: sums a byte of each cache line, which brings all of it here.

    All bytes would take numpy longer than the writer takes.
    """
    return sum(int(leaf.reshape(-1).view(np.uint8)[::64].sum()) for leaf in batch.values())
