"""The examples, run as a person runs them, for as short as they still do their job."""

import importlib.util
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"


def run(name, *options):
    return subprocess.run(
        [sys.executable, EXAMPLES / name, *options], capture_output=True, text=True, timeout=240
    )


def test_every_sample_of_the_workers_arrives():
    done = run("workers.py", "1000")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2000 samples of 2 workers, rewards 2000\n" and not done.stderr


def workers_of(pid):
    """The child processes that are workers, by what they were started with."""
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    commands = [pathlib.Path(f"/proc/{child}/cmdline").read_bytes() for child in children]
    return [command for command in commands if b"spawn_main" in command]


def ignores_ctrl_c(pid):
    (mask,) = re.findall(r"^SigIgn:\s*([0-9a-f]+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)
    return bool(int(mask, 16) & 1 << signal.SIGINT - 1)


@pytest.mark.parametrize(
    ("name", "options"), [("cartpole.py", []), ("dqn.py", []), ("atari_ingest.py", ["--frames", "1000000"])]
)
def test_ctrl_c_ends_the_workers_without_a_word(name, options, until):
    command = [sys.executable, EXAMPLES / name, *options]
    running = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # also where the tests run in the background
    )
    try:
        until(lambda: len(workers_of(running.pid)) == 2, "its workers do not start")
        until(lambda: not ignores_ctrl_c(running.pid), "it ignores Ctrl-C")
        os.killpg(running.pid, signal.SIGINT)
        _, said = running.communicate(timeout=120)
    finally:
        running.kill()
        running.wait()
    assert (running.returncode, said) == (130, "")


def test_cartpole_is_solved():
    done = run("cartpole.py", "--evaluate", "20")
    assert done.returncode == 0, done.stderr
    assert "solved: mean return" in done.stdout
    committed, delivered, pending = map(
        int, re.search(r"(\d+) committed = (\d+) delivered \+ (\d+) pending", done.stdout).groups()
    )
    assert committed == delivered + pending > 0
    assert "Traceback" not in done.stderr


def test_cartpole_is_solved_while_workers_are_killed():
    done = run("cartpole.py", "--evaluate", "20", "--kill-workers", "--kills", "3")
    assert done.returncode == 0, done.stderr
    assert int(re.search(r"with (\d+) workers killed", done.stdout)[1]) >= 3


def steps_of_dqn(said):
    """How many were sampled, and how many played."""
    return map(int, re.search(r"samples: (\d+) of (\d+) steps", said).groups())


def test_cartpole_is_solved_by_what_is_remembered():
    done = run("dqn.py", "--evaluate", "20", "--look", "250")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "solved: mean return" in done.stdout and "Traceback" not in done.stderr
    sampled, played = steps_of_dqn(done.stdout)
    assert 0 < sampled < 8 * played


def test_cartpole_is_solved_by_what_killed_workers_left():
    done = run("dqn.py", "--evaluate", "20", "--look", "250", "--kill-workers", "--kills", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"with (\d+) workers killed", done.stdout)[1]) >= 3
    sampled, played = steps_of_dqn(done.stdout)
    assert 0 < sampled < 8 * played


def test_every_frame_of_pong_arrives_as_it_was_drawn():
    done = run("atari_ingest.py", "--frames", "700")
    assert done.returncode == 0, done.stderr
    assert "1400 frames of 2 workers, all as they were drawn" in done.stdout


@pytest.mark.parametrize("step", ["301", "302"])
def test_a_byte_that_changed_on_its_way_is_found(step):
    done = run("atari_ingest.py", "--frames", "400", "--corrupt", step)
    assert done.returncode == 1
    assert f"frame {step} differs in 1 bytes, first at [[100, 80]]" in done.stderr


def test_tensors_are_trained_on():
    done = run("torch_dataloader.py")
    assert done.returncode == 0, done.stderr
    if importlib.util.find_spec("torch") is None:
        assert done.stdout == "skipped: torch is not installed\n"
        pytest.skip("torch is not installed")
    assert "200 batches, loss" in done.stdout
