"""Moves the frames of Atari's Pong from worker processes to a trainer that checks every byte of every frame.

    python client/python/examples/atari_ingest.py
    python client/python/examples/atari_ingest.py --frames 2000 --workers 4
    python client/python/examples/atari_ingest.py --no-check     # only how fast it is

Workers with an even number let the emulator draw straight into the table (`claim`), the others `append` what it drew. The
trainer has an emulator of its own for each worker, plays the actions that come with the frames, and compares. `--corrupt`
changes one byte of one frame on its way, which must be found.
"""

import argparse
import contextlib
import multiprocessing
import os
import signal
import sys
import time

import ale_py
import echod
import numpy as np
from ale_py import roms

SCREEN = (210, 160)
FRAME = {
    "screen": np.zeros(SCREEN, np.uint8),
    "action": np.int32(0),
    "reward": np.float32(0),
    "worker": np.int32(0),
    "step": np.int64(0),
}


class Pong:
    """The game, by its actions: the same ones from the same seed show the same frames."""

    def __init__(self, seed):
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self.ale = ale_py.ALEInterface()
        self.ale.setInt("random_seed", seed)
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.loadROM(roms.get_rom_path("pong"))
        self.actions = self.ale.getMinimalActionSet()

    def act(self, action):
        if self.ale.game_over():
            self.ale.reset_game()
        return self.ale.act(self.actions[action])

    def draw(self, screen):
        self.ale.getScreenGrayscale(screen)


def work(table, number, frames, corrupt):
    # One who is interrupted drops the table, perhaps before this has begun.
    with contextlib.suppress(echod.ClosedError, echod.GoneError, echod.NoSuchTableError):
        play(table, number, frames, corrupt)


def play(table, number, frames, corrupt):
    pong, rng = Pong(number), np.random.default_rng(number)
    own = np.zeros(SCREEN, np.uint8)
    with table.writer() as writer:
        for step in range(frames):
            action = int(rng.integers(len(pong.actions)))
            reward = pong.act(action)
            if number % 2 == 0 and step != corrupt:
                with writer.claim() as slot:
                    sample = slot.data
                    pong.draw(sample["screen"])
                    sample["action"][...] = action
                    sample["reward"][...] = reward
                    sample["worker"][...] = number
                    sample["step"][...] = step
                    del sample
            else:
                pong.draw(own)
                if step == corrupt:
                    own[100, 80] ^= 1
                writer.append(
                    {"screen": own, "action": action, "reward": float(reward), "worker": number, "step": step}
                )


class Checker:
    """Plays what the workers played."""

    def __init__(self):
        self.games, self.steps, self.screen = {}, {}, np.zeros(SCREEN, np.uint8)

    def check(self, data):
        for i, worker in enumerate(data["worker"].tolist()):
            if worker not in self.games:
                self.games[worker], self.steps[worker] = Pong(worker), 0
            game, expected = self.games[worker], self.steps[worker]
            self.steps[worker] += 1
            if data["step"][i] != expected:
                sys.exit(f"worker {worker}: step {data['step'][i]} came where {expected} was due")
            reward = game.act(int(data["action"][i]))
            game.draw(self.screen)
            if data["reward"][i] != reward or not np.array_equal(data["screen"][i], self.screen):
                differ = np.argwhere(data["screen"][i] != self.screen)
                sys.exit(f"worker {worker}: frame {expected} differs in {len(differ)} bytes, first at {differ[:1].tolist()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--socket", help="a daemon's socket; without it a private daemon is started")
    parser.add_argument("--workers", type=int, default=2, help="worker processes (default: %(default)s)")
    parser.add_argument("--frames", type=int, default=5000, help="of each worker (default: %(default)s)")
    parser.add_argument("--no-check", action="store_true", help="do not compare the frames")
    parser.add_argument("--corrupt", type=int, metavar="STEP", help="change one byte of that step's frame on its way")
    options = parser.parse_args()
    if options.socket:
        ingest(echod.connect(options.socket), options)
    else:
        with echod.local() as daemon:
            ingest(daemon.connect(), options)


def start(worker):
    """Ctrl-C is for the trainer, which drops the tables: a process that is started while it is ignored ignores it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker.start()
    signal.signal(signal.SIGINT, before)


def ingest(connection, options):
    table = connection.create_table(f"pong-{os.getpid()}", example=FRAME, batch_size=64, capacity=8)
    keep = table.writer()  # so that the table does not end with the first worker
    spawn = multiprocessing.get_context("spawn")
    workers = [
        spawn.Process(target=work, args=(table, number, options.frames, options.corrupt), daemon=True)
        for number in range(options.workers)
    ]
    try:
        for worker in workers:
            start(worker)
        read(table, keep, workers, options)
    finally:
        table.drop()
        for worker in workers:
            if worker.pid is not None:
                worker.join(30)


def read(table, keep, workers, options):
    checker = None if options.no_check else Checker()
    due, frames, read_bytes, began = options.workers * options.frames, 0, 0, None
    reader = table.reader(prefetch=2)
    while frames < due:
        # What is left of the last batch comes when all have finished.
        if frames + table.batch_size > due:
            for worker in workers:
                worker.join(60)
            keep.finish()
        batch = reader.next(timeout=60)
        began = began or time.monotonic()
        if checker is not None:
            checker.check(batch.data)
        frames += len(batch)
        read_bytes += batch.nbytes
        batch.release()
        if failed := [worker.exitcode for worker in workers if worker.exitcode]:
            sys.exit(f"a worker has ended with {failed[0]}")
    seconds = time.monotonic() - began
    what = "not checked" if checker is None else "all as they were drawn"
    print(
        f"{frames} frames of {options.workers} workers, {what}: {frames / seconds:.0f} frames/s, "
        f"{read_bytes / seconds / 1e9:.3f} GB/s"
    )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
