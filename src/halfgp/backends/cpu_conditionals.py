"""Rows given their neighbours, by the CPU engine: describes the kernel, and leaves the rest to C++."""

from __future__ import annotations

import torch
from torch import Tensor

from halfgp import _cpu
from halfgp.backends.chain_rule import parameter_gradient
from halfgp.backends.conditionals import Conditionals, Neighbourhoods
from halfgp.backends.paths import describe_nodes, plan_leaf
from halfgp.kernels import Kernel
from halfgp.kernels.program import Program
from halfgp.precision import Precision


def engine_conditionals(
    kernel: Kernel, of: Neighbourhoods, instruction_set: str, single: bool, threads: int, gradient: bool
) -> Conditionals:
    """What `Backend.conditionals` returns."""
    r, k = of.members.shape
    residuals = of.targets.new_empty(r, of.targets.shape[1])
    deviations, factor = of.targets.new_empty(r), of.targets.new_empty(r, k + 1)
    by_members = of.targets.new_empty(r, k + 1) if gradient else None
    explained = None if of.explained is None else _padded(of.explained)
    single = single and explained is None  # what landmarks leave is lost in single

    def run(
        program: Program, tables: list[Tensor | None]
    ) -> tuple[float, list[float], list[float], list[list[float]]]:
        features = [leaf.coordinates(of.x) for leaf in program.leaves]
        name = "single" if single else "double"
        return _cpu.conditionals(
            instruction_set, single, described_in(name, program, features), features,
            of.diagonal.contiguous(), of.targets.contiguous(), of.rows.contiguous(), of.members.contiguous(),
            explained, residuals, deviations, factor, by_members, tables, threads,
        )  # fmt: skip

    if by_members is None:
        program = kernel.detached().program()
        run(program, [None] * len(program.leaves))
        return Conditionals(residuals, deviations, factor)
    group = torch.cat([of.members, of.rows[:, None]], dim=1)
    by_diagonal = of.diagonal.new_zeros(len(of.x))  # known after the pass, and asked for after it

    def pass_over(program: Program, points: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """The program's tensors and the gradient in each."""
        features = [leaf.features(points[0]) if leaf.feature_parameters else None for leaf in program.leaves]
        tables = [None if f is None else of.targets.new_empty(r * (k + 1), f.shape[1]) for f in features]
        root, constants, shapes, scales = run(program, tables)
        outputs = [program.scale, *program.constants]
        gradients = [torch.tensor(g, dtype=torch.float64) for g in (root, *constants)]
        for i, leaf in enumerate(program.leaves):
            outputs.append(leaf.scales)
            # The engine's is by the logarithm.
            gradients.append(torch.tensor(scales[i], dtype=torch.float64) / leaf.scales.detach())
            if leaf.shape is not None:
                outputs.append(leaf.shape)
                gradients.append(torch.tensor(shapes[i], dtype=torch.float64))
            feature, table = features[i], tables[i]
            if feature is not None and table is not None:
                outputs.append(feature)
                gradients.append(_gathered(group, table, len(of.x)) * leaf.scales.detach())
        by_diagonal.copy_(_gathered(group, by_members.reshape(-1, 1), len(of.x))[:, 0])
        return outputs, gradients

    # The variances on the diagonal are the kernel's too.
    in_kernel, _, _ = parameter_gradient(kernel, [of.x.double()], by_diagonal, False, pass_over)
    return Conditionals(residuals, deviations, factor, in_kernel, by_diagonal)


def described_in(name: str, program: Program, features: list[Tensor]) -> _cpu.Program:
    """The program for points with those scaled features, in the precision of that name."""
    precision = Precision.resolve(name)
    plans = [
        plan_leaf(leaf, [z], precision, fixed_point=False, vanishing=0.0)
        for leaf, z in zip(program.leaves, features, strict=True)
    ]
    leaves = [plan.describe(leaf) for plan, leaf in zip(plans, program.leaves, strict=True)]
    constants = [constant.item() for constant in program.constants]
    return _cpu.Program(leaves, describe_nodes(program), constants, program.scale.item(), 0.0)


def _padded(explained: Tensor) -> Tensor:
    """With columns of zeros up to whole vectors."""
    n, r = explained.shape
    if r % _cpu.LANDMARKS == 0:
        return explained.contiguous()
    padded = explained.new_zeros(n, -(-r // _cpu.LANDMARKS) * _cpu.LANDMARKS)
    padded[:, :r] = explained
    return padded


def _gathered(group: Tensor, values: Tensor, n: int) -> Tensor:
    """Sums (n, f) over the neighbourhoods that a point is a member of, of values (r (k + 1), f)."""
    present = (group >= 0).reshape(-1)
    total = torch.zeros(n, values.shape[1], dtype=torch.float64)
    return total.index_add_(0, group.reshape(-1)[present], values[present])
