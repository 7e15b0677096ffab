"""Our kernels under GPyTorch's own test cases, and beside its kernels."""

from __future__ import annotations

import functools
import unittest
from unittest import mock

import gpytorch
import torch
from gpytorch.test.base_keops_test_case import BaseKeOpsTestCase
from gpytorch.test.base_kernel_test_case import BaseKernelTestCase

from halfgp.integrations.gpytorch import (
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    RQKernel,
)

PAIRS = {
    "RBF": (RBFKernel, gpytorch.kernels.RBFKernel),
    "Matern12": (functools.partial(MaternKernel, 0.5), functools.partial(gpytorch.kernels.MaternKernel, 0.5)),
    "Matern32": (functools.partial(MaternKernel, 1.5), functools.partial(gpytorch.kernels.MaternKernel, 1.5)),
    "Matern52": (functools.partial(MaternKernel, 2.5), functools.partial(gpytorch.kernels.MaternKernel, 2.5)),
    "RQ": (RQKernel, gpytorch.kernels.RQKernel),
    "Periodic": (PeriodicKernel, gpytorch.kernels.PeriodicKernel),
    "Linear": (LinearKernel, gpytorch.kernels.LinearKernel),
}


class _Kernel:
    def create_kernel_no_ard(self, **kwargs):
        return self.ours(**kwargs)

    def create_kernel_ard(self, num_dims, **kwargs):
        return self.ours(ard_num_dims=num_dims, **kwargs)


class _BesideTheirs:
    """What of `BaseKeOpsTestCase` is not about KeOps; the rest asks that its `LazyTensor` is called."""

    def setUp(self):
        super().setUp()
        place = "gpytorch.kernels.keops.keops_kernel.LazyTensor"
        patched = mock.patch(place, create=True)  # KeOps need not be installed to be not called
        patched.start()
        self.addCleanup(patched.stop)
        # By theirs, distances of single have lost half their digits, which exp(-r) shows.
        self.addCleanup(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float64)

    def _without_keops(self, name, use_keops=True, **kwargs):
        if use_keops:
            self.skipTest("asks that KeOps itself is called")
        getattr(BaseKeOpsTestCase, name)(self, use_keops=False, **kwargs)

    test_forward_x1_eq_x2 = functools.partialmethod(_without_keops, "test_forward_x1_eq_x2")
    test_forward_x1_neq_x2 = functools.partialmethod(_without_keops, "test_forward_x1_neq_x2")
    test_batch_matmul = functools.partialmethod(_without_keops, "test_batch_matmul")

    def test_gradient(self, use_keops=True, ard=False, **kwargs):
        if ard and self.ours is RQKernel:
            self.skipTest("stacks gradients of alpha and of lengthscales, which have other shapes")
        self._without_keops("test_gradient", use_keops, ard=ard, **kwargs)

    def k1(self, **kwargs):
        return self.ours(**kwargs)

    def k2(self, **kwargs):
        return self.theirs(**kwargs)


for _name, (_ours, _theirs) in PAIRS.items():
    _pair = {"ours": staticmethod(_ours), "theirs": staticmethod(_theirs), "seed": 0, "__module__": __name__}
    _bases = (_Kernel, BaseKernelTestCase, unittest.TestCase)
    globals()[f"Test{_name}"] = type(f"Test{_name}", _bases, _pair)
    if _name != "Linear":  # whose diagonal is a sum, of which no two ways agree to the last bit
        _bases = (_BesideTheirs, BaseKeOpsTestCase, unittest.TestCase)
        globals()[f"Test{_name}BesideTheirs"] = type(f"Test{_name}BesideTheirs", _bases, _pair)
