"""`python -m echod`: the daemon."""

from ._programs import echod

echod()
