"""How the processes of a measurement are started, told to go, and heard."""

import multiprocessing
import time
import traceback

_SPAWN = multiprocessing.get_context("spawn")


def _play(pipe, part, args):
    try:
        pipe.send(("done", part(Cue(pipe), *args)))
    except BaseException:
        pipe.send(("failed", traceback.format_exc()))


class Cue:
    """In a part: says that it is ready, and waits for the word to go."""

    def __init__(self, pipe):
        self._pipe = pipe

    def ready(self, said=None):
        """Returns what the stage has to say to this part: by default, when it said so."""
        self._pipe.send(("ready", said))
        return self._pipe.recv()


class Part:
    """A process that plays one part."""

    def __init__(self, part, *args):
        self._pipe, other = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_play, args=(other, part, args), daemon=True)
        self._process.start()
        other.close()

    def _hear(self, wanted):
        if not self._pipe.poll(120):
            self._process.kill()
            raise RuntimeError(f"a part was not {wanted} in two minutes")
        word, said = self._pipe.recv()
        if word != wanted:
            raise RuntimeError(f"a part is {word}, not {wanted}: {said}")
        return said

    def wait_ready(self):
        """What the part says with it."""
        return self._hear("ready")

    def go(self, said=None):
        self._pipe.send(time.monotonic() if said is None else said)

    def result(self):
        result = self._hear("done")
        self._process.join(10)
        return result


class Stopwatch:
    """In a reader: samples a second, without the first lap of the ring, in which both processes meet each page first."""

    def __init__(self, workload, n):
        self.batches = workload.capacity + n // workload.batch
        self._workload, self._read, self._began = workload, 0, None

    @staticmethod
    def samples(workload, n):
        """How many are to be written for `n` that count."""
        return workload.batch * (workload.capacity + n // workload.batch)

    def lap(self):
        """A batch was read."""
        self._read += 1
        if self._read == self._workload.capacity:
            self._began = time.monotonic()

    def rate(self):
        return (self._read - self._workload.capacity) * self._workload.batch / (time.monotonic() - self._began)


def rate(reader, writer):
    """What the reader says of it, once both have come to their end."""
    reader.wait_ready()
    writer.wait_ready()
    reader.go()
    writer.go()
    writer.result()
    return reader.result()
