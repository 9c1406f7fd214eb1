"""The package as a person gets it: a wheel, in an environment that has nothing else."""

import os
import pathlib
import re
import subprocess
import sys
import venv

import pytest

PACKAGE = pathlib.Path(__file__).parent.parent
REPOSITORY = PACKAGE.parent.parent


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, **options)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The directory of the programs of an environment with the wheel, and what it needs."""
    directory = tmp_path_factory.mktemp("package")
    quiet = ["--quiet", "--disable-pip-version-check"]
    run(sys.executable, "-m", "pip", "wheel", *quiet, "--no-deps", "--wheel-dir", directory, PACKAGE)
    (wheel,) = directory.glob("echod-*.whl")
    assert "-abi3-" in wheel.name, "one wheel for every Python"
    venv.create(directory / "venv", with_pip=True)
    programs = directory / "venv" / "bin"
    run(programs / "python", "-m", "pip", "install", *quiet, wheel)
    return programs


def blocks(file):
    """What the file shows as Python."""
    return re.findall(r"^```python\n(.*?)^```", (REPOSITORY / file).read_text(), re.M | re.S)


SAID = ["0 (256, 4) 0.0\n1 (256, 4) 0.0\n", "1 (4, 64)\n", "(32, 4) 1.0 200\n"]


@pytest.mark.parametrize(("file", "expected"), [("README.md", SAID[:2]), ("client/python/README.md", SAID)])
def test_the_lines_of_the_readme_run_as_they_stand(environment, file, expected, tmp_path):
    assert [run(environment / "python", "-c", block, cwd=tmp_path) for block in blocks(file)] == expected


def test_only_numpy_and_optree_are_imported(environment, tmp_path):
    told = "import echod, sys; print([name for name in ('torch', 'jax', 'ml_dtypes', 'tqdm') if name in sys.modules])"
    assert run(environment / "python", "-c", told, cwd=tmp_path) == "[]\n"
    listed = run(environment / "python", "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check")
    there = {line.split("==")[0].lower() for line in listed.splitlines()}
    assert there <= {"echod", "numpy", "optree", "typing-extensions", "typing_extensions", "pip", "setuptools"}


@pytest.mark.parametrize("program", ["echod", "echoctl"])
def test_the_programs_are_on_the_path(environment, program):
    assert "Usage:" in run(environment / program, "--help")


def test_help_is_enough_to_write_a_worker(environment, tmp_path):
    said = run(environment / "python", "-c", "import echod; help(echod)", cwd=tmp_path, env={**os.environ, "PAGER": "cat"})
    for word in ("echod.connect()", "create_table", "writer.append(sample)", "writer.finish()", "table.reader(", "create_latest"):
        assert word in said
