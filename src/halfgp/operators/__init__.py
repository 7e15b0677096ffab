"""Matrices by their products: kernel matrices, which are never formed, and adapters for what others made."""

from halfgp.operators.adapters import as_operator
from halfgp.operators.base import Operator
from halfgp.operators.kernel import KernelOperator

__all__ = ["KernelOperator", "Operator", "as_operator"]
