"""The contract of a backend, shipped with the package, so that it can be run on the device one has."""

from halfgp.selftest.run import Outcome, self_test

__all__ = ["Outcome", "self_test"]
