"""What is public is called by its public name: in tracebacks, by `repr`, and where it is pickled."""

import pickle

import echod
import pytest


@pytest.mark.parametrize("name", echod.__all__)
def test_a_public_name_is_that_of_the_package(name):
    assert getattr(echod, name).__module__ == "echod"


def test_a_class_is_pickled_by_its_public_name():
    assert b"echod._" not in pickle.dumps(echod.TimeoutError)
    assert pickle.loads(pickle.dumps(echod.Leaf("x", "float32", (2,)))) == ("x", "float32", (2,))
