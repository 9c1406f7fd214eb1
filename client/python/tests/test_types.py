"""The package's types: it keeps to them itself, they say what the native module has, and they help who uses them."""

import importlib.resources
import pathlib
import subprocess
import sys

TESTS = pathlib.Path(__file__).parent


def python(*command, **options):
    ran = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=300, **options)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def mypy(path, caches):
    said = python("-m", "mypy", "--strict", "--config-file=", "--cache-dir", caches, path, cwd=caches)
    assert "Success: no issues found" in said


def test_a_users_program_is_helped(tmp_path):
    # It reads the package as it is installed.
    assert (importlib.resources.files("echod") / "py.typed").is_file()
    mypy(TESTS / "typed_program.py", tmp_path)


def test_the_package_keeps_to_its_own_types(tmp_path):
    mypy(TESTS.parent / "echod", tmp_path)


def test_the_stubs_are_what_the_native_module_has(tmp_path):
    # pyo3's classes have their fields in places that mypy calls a disjoint base, and no stub of Python 3.10 can say.
    said = python("-m", "mypy.stubtest", "--ignore-disjoint-bases", "echod._native", cwd=tmp_path)
    assert "no issues found" in said


def test_the_typed_program_runs(tmp_path):
    said = python(TESTS / "typed_program.py", cwd=tmp_path)
    assert "'typed'" in said
