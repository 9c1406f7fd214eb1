"""Solves Gymnasium's CartPole-v1: worker processes play, a trainer in numpy learns (PPO) from batches that it reads in place.

    python client/python/examples/cartpole.py
    python client/python/examples/cartpole.py --kill-workers    # one is killed every half second, and it is solved all the same
    python client/python/examples/cartpole.py --socket PATH     # over a daemon that runs, to look at with echoctl

A sample is one step: what was seen, what was done and how likely that was, and what came of it. The policy goes to the
workers by a latest table, which each looks at before an episode.
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

BATCH = 1024
HIDDEN = 64
DISCOUNT = 0.99
SOLVED = 475.0
STEP = {
    "obs": np.zeros(4, np.float32),
    "action": np.int64(0),
    "logp": np.float32(0),
    "gain": np.float32(0),  # discounted, from this step to the end of its episode
    "episode_return": np.float32(0),
    "is_last": np.bool_(False),
}


# --- the policy: two hidden layers for actions and value, in numpy


def new_policy(rng):
    def layer(n, m, scale):
        return rng.normal(0, scale / np.sqrt(n), (n, m)).astype(np.float32), np.zeros(m, np.float32)

    return [*layer(4, HIDDEN, 1.4), *layer(HIDDEN, 2, 0.01), *layer(4, HIDDEN, 1.4), *layer(HIDDEN, 1, 1.0)]


def log_probabilities(policy, obs):
    w1, b1, w2, b2 = policy[:4]
    logits = np.tanh(obs @ w1 + b1) @ w2 + b2
    logits -= logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def gradients(policy, obs, action, logp, gain):
    """Of PPO's clipped objective, an entropy bonus, and the squared error of the value."""
    w1, b1, w2, b2, v1, c1, v2, c2 = policy
    n = np.arange(len(obs))
    hidden, seen = np.tanh(obs @ w1 + b1), np.tanh(obs @ v1 + c1)
    value = (seen @ v2 + c2)[:, 0]
    all_logp = log_probabilities(policy, obs)
    p = np.exp(all_logp)
    advantage = gain - value
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)

    ratio = np.exp(all_logp[n, action] - logp)
    clipped = ((ratio > 1.2) & (advantage > 0)) | ((ratio < 0.8) & (advantage < 0))
    weight = np.where(clipped, 0, ratio * advantage) / len(obs)
    d_logits = p * weight[:, None]
    d_logits[n, action] -= weight
    entropy = -(p * all_logp).sum(1, keepdims=True)
    d_logits += 0.01 / len(obs) * p * (all_logp + entropy)
    d_value = (2 * 0.5 / len(obs) * (value - gain))[:, None]

    d_hidden = d_logits @ w2.T * (1 - hidden**2)
    d_seen = d_value @ v2.T * (1 - seen**2)
    return [
        obs.T @ d_hidden, d_hidden.sum(0), hidden.T @ d_logits, d_logits.sum(0),
        obs.T @ d_seen, d_seen.sum(0), seen.T @ d_value, d_value.sum(0),
    ]  # fmt: skip


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


def learn(policy, adam, data, rng):
    # Gains are of the order of 1/(1 - DISCOUNT): the value learns them at a scale of one.
    gain = data["gain"] * np.float32(1 - DISCOUNT)
    for _ in range(6):
        for part in np.array_split(rng.permutation(len(gain)), 8):
            grads = gradients(policy, data["obs"][part], data["action"][part], data["logp"][part], gain[part])
            adam.step(policy, grads)


# --- workers


def work(table, weights, seed):
    """Plays until the tables are dropped."""
    environment = gymnasium.make("CartPole-v1")
    rng = np.random.default_rng(seed)
    try:
        writer, latest = table.writer(), weights.latest()
        policy = latest.wait_newer_than(0, timeout=60)
        while True:
            policy = latest.newer_than(policy.version) or policy
            writer.append_many(play(environment, policy.data, rng))
    except (echod.ClosedError, echod.GoneError, echod.NoSuchTableError):
        pass  # solved
    except echod.PartlyError as error:
        if not isinstance(error.__cause__, (echod.ClosedError, echod.GoneError)):
            raise


def play(environment, policy, rng):
    """The steps of an episode, as arrays with a leading axis."""
    obs, _ = environment.reset(seed=int(rng.integers(1 << 31)))
    seen, actions, logps = [], [], []
    over = False
    while not over:
        logp = log_probabilities(policy, obs)
        action = int(rng.random() >= np.exp(logp[0]))
        seen.append(obs)
        actions.append(action)
        logps.append(logp[action])
        obs, _, terminated, truncated, _ = environment.step(action)
        over = terminated or truncated
    n = len(actions)
    # Each step earns 1. An episode that was cut at 500 steps goes on in the mean: its end is worth as much as a long one.
    after = 1 / (1 - DISCOUNT) if not terminated else 0.0
    left = np.arange(n, 0, -1)
    gain = (1 - DISCOUNT**left) / (1 - DISCOUNT) + DISCOUNT**left * after
    return {
        "obs": np.asarray(seen, np.float32),
        "action": np.asarray(actions, np.int64),
        "logp": np.asarray(logps, np.float32),
        "gain": gain.astype(np.float32),
        "episode_return": np.full(n, n, np.float32),
        "is_last": left == 1,
    }


def evaluate(policy, episodes, seed):
    """The mean return of the policy's likeliest actions."""
    environment = gymnasium.make("CartPole-v1")
    total = 0.0
    for episode in range(episodes):
        obs, _ = environment.reset(seed=seed + episode)
        over = False
        while not over:
            obs, reward, terminated, truncated, _ = environment.step(int(log_probabilities(policy, obs).argmax()))
            total += reward
            over = terminated or truncated
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
    name = f"cartpole-{os.getpid()}"
    table = connection.create_table(name, example=STEP, batch_size=BATCH, capacity=8)
    rng = np.random.default_rng(options.seed)
    policy = new_policy(rng)
    adam = Adam(policy, 2e-3)
    began = time.monotonic()
    # Room for the newest, the next, and an old one in the hands of each worker.
    weights = connection.create_latest(f"{name}-weights", example=policy, capacity=options.workers + 2)
    publisher = weights.publisher()
    publisher.publish(policy)
    crew = Crew(options.workers, table, weights, 1000 * options.seed)
    returns, batches = [], 0
    try:
        reader = table.reader(prefetch=2)
        while True:
            batch = reader.next(timeout=60)
            learn(policy, adam, batch.data, rng)
            returns += batch.data["episode_return"][batch.data["is_last"]].tolist()
            batch.release()
            publisher.publish(policy)
            batches += 1
            crew.check()
            if options.kill_workers:
                crew.kill_one_now_and_then()
            if batches % 20 == 0:
                print(f"{batches * BATCH:8} steps, {time.monotonic() - began:5.1f} s: return {np.mean(returns[-40:]):5.1f}")
            promising = len(returns) >= 40 and np.mean(returns[-40:]) > 400
            enough = not options.kill_workers or crew.killed >= options.kills
            if promising and enough and batches % 5 == 0:
                mean = evaluate(policy, options.evaluate, 1_000_000 + options.seed)
                if mean >= SOLVED:
                    break
            if batches * BATCH > options.steps:
                sys.exit(f"not solved in {options.steps} steps")
        samples = table.info()
    finally:
        table.drop()
        weights.drop()
        crew.end()
    seconds = time.monotonic() - began
    print(
        f"solved: mean return {mean:.1f} over {options.evaluate} episodes, after {batches * BATCH} steps in {seconds:.1f} s"
        + (f", with {crew.killed} workers killed" if options.kill_workers else "")
    )
    accounted = samples["samples_delivered"] + samples["samples_pending"]
    print(
        f"samples: {samples['samples_committed']} committed = {samples['samples_delivered']} delivered + "
        f"{samples['samples_pending']} pending"
    )
    if samples["samples_committed"] != accounted:
        sys.exit("samples were lost")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--socket", help="a daemon's socket; without it a private daemon is started")
    parser.add_argument("--workers", type=int, default=2, help="worker processes (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the policy and the environments (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=3_000_000, help="give up after that many (default: %(default)s)")
    parser.add_argument("--evaluate", type=int, default=100, metavar="EPISODES", help="episodes of the last test")
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
