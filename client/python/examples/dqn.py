"""Solves Gymnasium's CartPole-v1 by DQN with prioritized replay: worker processes play, a trainer in numpy learns.

    python client/python/examples/dqn.py
    python client/python/examples/dqn.py --kill-workers    # one is killed every half second, and it is solved all the same
    python client/python/examples/dqn.py --socket PATH     # over a daemon that runs, to look at with echoctl

A sample is one step and what came of it in the next few. The rate limiter of the replay table keeps both sides together: each
step is sampled eight times on average, however fast the machine's workers or its trainer are. Samples come by their priority,
which is how wrong the trainer was about them, and importance weights make up for that (Schaul et al., 2015); targets are
those of double DQN (van Hasselt et al., 2015). The policy goes to the workers by a latest table, at which they look before
each step.
"""

import argparse
import multiprocessing
import os
import random
import signal
import sys
import time

import echod
import gymnasium
import numpy as np

BATCH = 128
HIDDEN = 64
DISCOUNT = 0.99
STEPS = 3  # that a sample looks ahead
SAMPLES_PER_STEP = 8
MIN_SIZE = 1000
MAX_SIZE = 50_000
PUBLISH = 20  # updates from one policy to the next
TARGET = 0.01  # how fast the target network follows
SAMPLE = {
    "obs": np.zeros(4, np.float32),
    "action": np.int64(0),
    "gain": np.float32(0),  # discounted, of the steps that it looks ahead
    "next_obs": np.zeros(4, np.float32),  # after these
    "discount": np.float32(0),  # of what comes then; 0 if the pole has fallen
}


# --- the policy: a network with two hidden layers, in numpy


def new_policy(rng):
    def layer(n, m):
        return rng.normal(0, np.sqrt(2 / n), (n, m)).astype(np.float32), np.zeros(m, np.float32)

    return [*layer(4, HIDDEN), *layer(HIDDEN, HIDDEN), *layer(HIDDEN, 2)]


def hidden(policy, obs):
    w1, b1, w2, b2 = policy[:4]
    first = np.maximum(obs @ w1 + b1, 0)
    return first, np.maximum(first @ w2 + b2, 0)


def values(policy, obs):
    """Of both actions."""
    w3, b3 = policy[4:]
    return hidden(policy, obs)[1] @ w3 + b3


def gradients(policy, target, data, weights):
    """Of Huber's loss, each sample by its weight; and how wrong each was."""
    n = np.arange(len(weights))
    w3, b3 = policy[4:]
    first, second = hidden(policy, data["obs"])
    value = (second @ w3 + b3)[n, data["action"]]
    # The one network chooses, the other judges.
    best = values(policy, data["next_obs"]).argmax(1)
    after = values(target, data["next_obs"])[n, best]
    error = value - (data["gain"] + data["discount"] * after)

    d_value = np.zeros((len(n), 2), np.float32)
    d_value[n, data["action"]] = np.clip(error, -1, 1) * weights / len(n)
    d_second = (d_value @ w3.T) * (second > 0)
    d_first = (d_second @ policy[2].T) * (first > 0)
    grads = [
        data["obs"].T @ d_first, d_first.sum(0), first.T @ d_second, d_second.sum(0), second.T @ d_value, d_value.sum(0)
    ]  # fmt: skip
    return grads, error


class Adam:
    def __init__(self, policy, rate):
        self.rate, self.t = rate, 0
        self.mean = [np.zeros_like(x) for x in policy]
        self.square = [np.zeros_like(x) for x in policy]

    def step(self, policy, grads):
        self.t += 1
        for x, m, s, g in zip(policy, self.mean, self.square, grads):
            m += 0.1 * (g - m)
            s += 0.001 * (g * g - s)
            x -= self.rate * (m / (1 - 0.9**self.t)) / (np.sqrt(s / (1 - 0.999**self.t)) + 1e-8)


# --- workers


def work(table, weights, seed):
    """Plays until the tables are dropped."""
    environment = gymnasium.make("CartPole-v1")
    rng = np.random.default_rng(seed)
    curious = rng.choice([0.01, 0.05, 0.2])  # how often it tries something else, in the long run
    try:
        writer, latest = table.writer(timeout=60), weights.latest()
        policy = latest.wait_newer_than(0, timeout=60)
        while True:
            policy, samples, versions = play(environment, latest, policy, curious, rng)
            # Without priorities: what is new is as important as what is most important.
            writer.append_many(samples, versions=versions)
    except (echod.ClosedError, echod.GoneError, echod.NoSuchTableError):
        pass  # solved
    except echod.PartlyError as error:
        if not isinstance(error.__cause__, (echod.ClosedError, echod.GoneError)):
            raise


def play(environment, latest, policy, curious, rng):
    """An episode's samples, as arrays with a leading axis, and the versions of the policy that made them."""
    obs, _ = environment.reset(seed=int(rng.integers(1 << 31)))
    seen, actions, versions = [obs], [], []
    over = False
    while not over:
        policy = latest.newer_than(policy.version) or policy
        if rng.random() < max(curious, 1 - policy.version / 20):
            action = int(rng.integers(2))
        else:
            action = int(values(policy.data, obs).argmax())
        obs, _, terminated, truncated, _ = environment.step(action)
        seen.append(obs)
        actions.append(action)
        versions.append(policy.version)
        over = terminated or truncated
    n = len(actions)
    ahead = np.minimum(np.arange(n) + STEPS, n)
    steps = ahead - np.arange(n)
    seen = np.asarray(seen, np.float32)
    # Each step earns 1 - DISCOUNT, so that all that can come is worth 1. An episode that was cut at 500 steps would go on.
    has_fallen = terminated & (ahead == n)
    samples = {
        "obs": seen[:-1],
        "action": np.asarray(actions, np.int64),
        "gain": (1 - DISCOUNT**steps).astype(np.float32),
        "next_obs": seen[ahead],
        "discount": np.where(has_fallen, 0, DISCOUNT**steps).astype(np.float32),
    }
    return policy, samples, versions


def evaluate(policy, episodes, seed):
    """The mean return of the policy's best actions."""
    environments = [gymnasium.make("CartPole-v1") for _ in range(episodes)]
    obs = np.array([environment.reset(seed=seed + i)[0] for i, environment in enumerate(environments)])
    running, total = np.arange(episodes), 0.0
    while len(running):
        actions = values(policy, obs[running]).argmax(1)
        left = []
        for i, action in zip(running, actions):
            obs[i], reward, terminated, truncated, _ = environments[i].step(int(action))
            total += reward
            if not (terminated or truncated):
                left.append(i)
        running = np.array(left, int)
    return total / episodes


def start(worker):
    """Ctrl-C is for the trainer, which drops the tables: a process that is started while it is ignored ignores it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker.start()
    signal.signal(signal.SIGINT, before)


class Crew:
    """The worker processes."""

    def __init__(self, n, table, weights, seed):
        self.spawn = multiprocessing.get_context("spawn")
        self.table, self.weights, self.seed, self.started = table, weights, seed, 0
        self.workers = [self.start() for _ in range(n)]
        self.killed, self.next_kill = 0, time.monotonic() + 2

    def start(self):
        self.started += 1
        worker = self.spawn.Process(
            target=work, args=(self.table, self.weights, self.seed + self.started), daemon=True
        )
        start(worker)
        return worker

    def kill_one_now_and_then(self):
        if time.monotonic() >= self.next_kill:
            i = random.randrange(len(self.workers))
            self.workers[i].kill()
            self.workers[i].join()
            self.workers[i] = self.start()
            self.killed += 1
            self.next_kill = time.monotonic() + 0.5

    def check(self):
        for worker in self.workers:
            if worker.exitcode is not None:
                sys.exit(f"a worker has ended by itself, with {worker.exitcode}")

    def end(self):
        """They end when the tables are gone."""
        for worker in self.workers:
            worker.join(30)


def train(connection, options):
    name = f"dqn-{os.getpid()}"
    rng = np.random.default_rng(options.seed)
    policy = new_policy(rng)
    target = [x.copy() for x in policy]
    table = connection.create_replay(
        name,
        example=SAMPLE,
        max_size=MAX_SIZE,
        batch_size=BATCH,
        sampler=echod.Prioritized(0.6),
        rate_limiter=echod.SampleToInsertRatio(SAMPLES_PER_STEP, min_size=MIN_SIZE, error_buffer=20 * BATCH),
    )
    weights = connection.create_latest(f"{name}-weights", example=policy, capacity=options.workers + 2)
    publisher = weights.publisher()
    publisher.publish(policy)
    adam = Adam(policy, 1e-3)
    began, updates, best = time.monotonic(), 0, 0.0
    crew = Crew(options.workers, table, weights, 1000 * options.seed)
    try:
        reader = table.reader(prefetch=2)
        for batch in reader:
            beta = min(1.0, 0.4 + updates / 10_000)
            grads, error = gradients(policy, target, batch.data, batch.weights(beta).astype(np.float32))
            reader.update_priorities(batch.info.keys, np.abs(error) + 1e-3)
            batch.release()
            adam.step(policy, grads)
            for slow, fast in zip(target, policy):
                slow += TARGET * (fast - slow)
            updates += 1
            if updates % PUBLISH == 0:
                version = publisher.publish(policy)
                reader.state_version(version)
                lag = version - batch.info.versions.mean()
                crew.check()
                if options.kill_workers:
                    crew.kill_one_now_and_then()
            if updates % options.look == 0:
                mean = evaluate(policy, 10, 1_000_000 + updates)
                best = max(best, mean)
                print(f"{updates:6} updates, {time.monotonic() - began:5.1f} s: return {mean:5.1f}", flush=True)
                if mean >= options.solved and (not options.kill_workers or crew.killed >= options.kills):
                    mean = evaluate(policy, options.evaluate, 2_000_000 + options.seed)
                    if mean >= options.solved:
                        break
            if updates >= options.updates:
                sys.exit(f"not solved in {options.updates} updates; the best return was {best:.1f}")
        shown = table.info()["replay"]
    finally:
        table.drop()
        weights.drop()
        crew.end()
    print(
        f"solved: mean return {mean:.1f} over {options.evaluate} episodes, after {updates} updates and {shown['inserts']} steps in "
        f"{time.monotonic() - began:.1f} s" + (f", with {crew.killed} workers killed" if options.kill_workers else "")
    )
    used = shown["inserts"] * SAMPLES_PER_STEP - shown["samples"]
    print(f"samples: {shown['samples']} of {shown['inserts']} steps; the last ones were made {lag:.0f} policies before, on average")
    if abs(used - SAMPLES_PER_STEP * MIN_SIZE) > 20 * BATCH:
        sys.exit("the limiter let one side run ahead")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--socket", help="a daemon's socket; without it a private daemon is started")
    parser.add_argument("--workers", type=int, default=2, help="worker processes (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the policy and the environments (default: %(default)s)")
    parser.add_argument("--updates", type=int, default=50_000, help="give up after that many (default: %(default)s)")
    parser.add_argument("--solved", type=float, default=475.0, metavar="RETURN", help="wanted of both tests (default: %(default)s)")
    parser.add_argument("--evaluate", type=int, default=100, metavar="EPISODES", help="episodes of the last test")
    parser.add_argument("--look", type=int, default=500, metavar="UPDATES", help="test it that often (default: %(default)s)")
    parser.add_argument("--kill-workers", action="store_true", help="kill a worker every half second")
    parser.add_argument("--kills", type=int, default=5, help="with --kill-workers, so many at least (default: %(default)s)")
    options = parser.parse_args()
    if options.socket:
        train(echod.connect(options.socket), options)
    else:
        with echod.local() as daemon:
            train(daemon.connect(), options)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
