"""Matrices by their products: kernel matrices, which are never formed, and adapters for what others made."""

from halfgp.operators.adapters import as_operator
from halfgp.operators.base import Operator
from halfgp.operators.kernel import KernelOperator
from halfgp.operators.sharded import ShardedKernel

__all__ = ["KernelOperator", "Operator", "ShardedKernel", "as_operator"]
