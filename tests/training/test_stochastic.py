from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from contracts.textbook import Textbook, at, points, targets

from halfgp.backends import get_backend
from halfgp.errors import TrainingError
from halfgp.kernels import RBF, Matern
from halfgp.likelihood import GradientEquations, dense_likelihood
from halfgp.likelihood.traces import TRACES
from halfgp.model import ExactGP, training_of
from halfgp.options import declarations
from halfgp.precision import Precision
from halfgp.preconditioners import PivotedCholesky, SparseInverseCholesky
from halfgp.priors import PAPER
from halfgp.problem import Problem
from halfgp.settings import Settings, TrainingOptions
from halfgp.solvers import cg
from halfgp.threads import torch_threads
from halfgp.training import evaluation, train
from halfgp.training.stochastic import StochasticTraining

N = 300
START = at(1.0 * Matern(1.5, lengthscale=[0.8, 1.2]), noise=0.3, mean=[0.0])


def settings(**options):
    inner = {d.name: f"training__{d.name}" for d in declarations(TrainingOptions)}
    names = {**inner, "preconditioner": "solve__preconditioner"}
    given = {"method": "cg", "subset": 0, "steps": 3, "tol": 1e-3, **options}
    named = {names.get(name, name): value for name, value in given.items()}
    return training_of(Settings().with_params(**named))


def problem(n=N, **options):
    x = points(n, 2)
    return Problem(x, targets(x), **options)


def run(start=START, rows=None, observe=lambda step, hyperparameters: None, priors=PAPER, **options):
    return train(start, rows or problem(), settings(**options), priors, observe=observe)


class Watched:
    """The backend that serves, which notes its own threads and torch's at every product."""

    def __init__(self):
        self.seen = set()
        self._inner = get_backend("auto", torch.device("cpu"))
        self.name = self._inner.name

    def bind(self, *points, threads, **options):
        matrix = self._inner.bind(*points, threads=threads, **options)
        product = matrix.matmul
        matrix.matmul = lambda *args: self.seen.add((threads, torch.get_num_threads())) or product(*args)
        return matrix


@pytest.mark.parametrize(("probes", "dense"), [(100, 1), (110, 2)])  # 300 rows: 30,300 numbers, and 33,300
def test_short_vectors_take_one_thread_and_products_all(probes, dense):
    """A team of threads at a BLAS that has microseconds of work costs ten times what it saves."""
    watched = Watched()
    with torch_threads(2):
        run(rows=problem(backend=watched), steps=1, probes=probes, gradient="pathwise")
        assert torch.get_num_threads() == 2
    assert watched.seen == {(2, dense)}


def poison(monkeypatch, *calls):
    """Make the gradient of these calls, counted from 0, not a number."""
    plain, seen = GradientEquations.gradient, []

    def gradient(self, solutions):
        found = plain(self, solutions)
        seen.append(self.operator.precision.name)
        if len(seen) - 1 in calls:
            found["noise"] = found["noise"] * math.nan
        return found

    monkeypatch.setattr(GradientEquations, "gradient", gradient)
    return seen


@pytest.mark.parametrize(
    ("precision", "methods"),
    [("half", ["paper", "paper", "auto"]), ("bfloat16", ["paper"] * 2 + ["auto"]), ("auto", ["auto"] * 3)],
)
def test_solves_in_sixteen_bits_are_the_papers_until_a_step_climbs(monkeypatch, precision, methods):
    seen = []

    def solve(*args, **options):
        seen.append(options["method"])
        return cg(*args, **options)

    monkeypatch.setattr(evaluation, "cg", solve)
    poison(monkeypatch, 1)
    run(rows=problem(precision=precision), steps=2, tol=0.1)
    assert seen == methods


@pytest.mark.parametrize("gradient", TRACES)
def test_the_gradient_and_the_loss_are_near_the_exact_ones(gradient):
    rows = problem()
    steps = []
    run(
        rows=rows,
        steps=1,
        probes=64,
        gradient=gradient,
        observe=lambda step, hyperparameters: steps.append(step),
    )
    exact = dense_likelihood(START, rows.x, rows.y, priors=PAPER)
    assert abs(steps[0].loss - exact.loss) < 4 * steps[0].loss_error + 1e-3
    assert 0 < steps[0].loss_error < 0.05
    assert steps[0].residual <= 1e-3
    assert steps[0].passes > 0


@pytest.mark.parametrize(
    ("kernel", "d"), [(RBF(0.5), 2), (Matern(1.5, lengthscale=1.0), 4), (Matern(0.5, lengthscale=1.0), 4)]
)
def test_at_small_noise_the_loss_is_not_biased_by_more_than_its_error(kernel, d):
    """Too few Lanczos steps overestimate the log-determinant: by 0.1 a row with 15 of them."""
    x = points(1000, d)
    rows = Problem(x, targets(x, noise=1e-3))
    start = at(kernel, noise=1e-3)
    steps = []
    run(
        start,
        rows,
        steps=1,
        probes=40,
        max_iterations=1000,
        observe=lambda step, hyperparameters: steps.append(step),
    )
    exact = dense_likelihood(start, rows.x, rows.y, priors=PAPER)
    # Beside the quadrature's: a residual of 1e-3 of the targets times the weights, whose norm is this.
    fit = 1e-3 * float(rows.y.norm() * exact.weights.norm()) / (2 * rows.rows)
    assert fit < 0.02
    assert abs(steps[0].loss - exact.loss) < 4 * steps[0].loss_error + fit


@pytest.mark.parametrize("optimiser", ["adam", "lbfgs"])
@pytest.mark.parametrize("softplus", [False, True])
def test_steps_go_down(optimiser, softplus):
    rows = problem()
    found = run(rows=rows, optimiser=optimiser, softplus=softplus, steps=12, probes=20)
    losses = [
        dense_likelihood(hyperparameters, rows.x, rows.y, priors=PAPER).loss
        for hyperparameters in (START, found.hyperparameters)
    ]
    assert losses[1] < losses[0] - 0.05
    # By the trapezoid rule the loss follows, within its error, from the first step to the last evaluated.
    last = START.with_parameters(
        {
            name: p.with_value(found.history[-1].hyperparameters[name])
            for name, p in START.named_parameters().items()
        }
    )
    exact = dense_likelihood(last, rows.x, rows.y, priors=PAPER).loss
    assert abs(found.history[-1].loss - exact) < 4 * found.history[-1].loss_error + 0.02


def test_cholesky_and_cg_agree_where_both_can():
    """Continuity across the switch: the same rows, trained either way, predict alike."""
    x = points(400, 2)
    y = targets(x)[:, 0]
    new = points(100, 2, seed=8)
    exact = ExactGP(method="cholesky").fit(x, y)
    iterative = ExactGP(
        method="cg",
        training__subset=200,
        training__steps=25,
        training__probes=20,
        training__tol=1e-2,
        solve__tol=1e-4,
    ).fit(x, y)
    (mean, std), (other, spread) = (m.predict(new, return_std=True)[:2] for m in (exact, iterative))
    assert iterative.report.method == "cg"
    # A tenth of the predictive deviation: a hundredth of it in the log density.
    assert float(abs(mean - other).max()) < 0.1 * float(std.min())
    assert float(abs(spread / std - 1).max()) < 0.05
    for name, p in exact.hyperparameters.named_parameters().items():
        if name != "mean":
            ratio = iterative.hyperparameters.named_parameters()[name].value / p.value
            assert float(ratio.log().abs().max()) < 0.35, name


@pytest.mark.parametrize(
    ("precision", "then"),
    [("half", "single"), ("single", "double"), ("auto", "double"), ("bfloat16", "double")],
)
def test_a_gradient_that_is_not_finite_rolls_back_and_climbs(monkeypatch, precision, then):
    seen = poison(monkeypatch, 1)
    found = run(rows=problem(precision=precision), steps=3)
    notes = [step.note for step in found.history]
    assert notes == ["", f"no finite gradient: rolled back, on in {then}", "", ""]
    assert [step.index for step in found.history] == [0, 1, 2, 3]
    assert math.isnan(found.history[1].gradient_norm)
    assert not found.interrupted
    # Half way between the last good point and the one that failed, on the logarithm.
    good, bad, again = (math.log(found.history[k].hyperparameters["noise"] - 1e-4) for k in (0, 1, 2))
    assert again == pytest.approx(0.5 * (good + bad), rel=1e-9)
    # The gradient, too, is in double once the solves are.
    assert seen == ["single", "single", *([then] * 2 if then == "double" else ["single"] * 2)]


def test_a_first_step_that_fails_is_tried_again_where_it_was(monkeypatch):
    poison(monkeypatch, 0)
    found = run(steps=1)
    assert [step.note != "" for step in found.history] == [True, False]
    assert found.history[0].hyperparameters == found.history[1].hyperparameters


def test_at_the_top_training_ends_with_the_remedy(monkeypatch):
    poison(monkeypatch, 0, 1, 2, 3)
    with pytest.raises(TrainingError, match=r"no finite gradient even in double. Lower `learning_rate`, or"):
        run(rows=problem(precision="half"))


def test_a_point_that_no_format_holds_is_a_step_that_failed():
    """A lengthscale of e^-14 takes the points out of the range of half; single has room for them."""
    start = at(1.0 * Matern(1.5, lengthscale=5.0), noise=0.3)
    found = run(start, problem(precision="half"), learning_rate=16.0, steps=2)
    assert [step.note for step in found.history] == ["", "no finite gradient: rolled back, on in single", ""]
    assert math.isnan(found.history[1].residual)
    assert found.history[1].passes == 0
    assert found.history[1].hyperparameters["kernel.lengthscale"] < 1e-5


def test_ctrl_c_leaves_what_was_found():
    def stop(step, hyperparameters):
        if step.index == 1:
            raise KeyboardInterrupt

    found = run(observe=stop, steps=5)
    assert found.interrupted
    assert len(found.history) == 2
    assert found.weights.shape == (N, 1)
    whole = run(steps=2)
    for name, p in found.hyperparameters.named_parameters().items():
        assert torch.equal(p.value, whole.hyperparameters.named_parameters()[name].value)


def test_ctrl_c_in_the_exact_stage_leaves_its_best():
    def stop(step, hyperparameters):
        if step.index == 4:
            raise KeyboardInterrupt

    found = run(observe=stop, subset=100, steps=5)
    assert found.interrupted
    assert {step.stage for step in found.history} == {"subset"}
    best = min(found.history, key=lambda step: step.loss)
    assert found.hyperparameters.noise.value.item() == best.hyperparameters["noise"]
    assert found.weights is None


def test_without_steps_the_exact_stage_decides():
    found = run(subset=100, steps=0)
    assert {step.stage for step in found.history} == {"subset", "neighbours"}
    assert found.weights is None
    assert found.method == "cg"


def test_a_solve_starts_from_the_last_solution():
    """After a step of next to nothing one residual shows that it still holds.

    One pass is that of the probes, and one the gradient's.
    """
    found = run(steps=3, tol=1e-2, learning_rate=1e-6, preconditioner=None)
    assert [step.passes for step in found.history[1:]] == [3, 3]
    assert found.history[0].passes > 10


def test_weights_are_those_of_the_last_solve():
    rows = problem()
    found = run(rows=rows, steps=1, tol=1e-6, max_iterations=1000)
    exact = torch.linalg.solve(Textbook(START, rows.x, rows.y).matrix, rows.y)
    torch.testing.assert_close(found.weights, exact, rtol=0, atol=1e-4 * float(exact.abs().max()))


@pytest.mark.parametrize(
    "preconditioner", [None, "nystrom", "randomly_pivoted_cholesky", PivotedCholesky(rank=10)]
)
def test_any_preconditioner_serves(preconditioner):
    found = run(steps=1, preconditioner=preconditioner)
    assert found.history[0].residual <= 1e-3
    assert math.isfinite(found.history[0].loss)


def test_a_precision_of_ones_own_is_used_as_it_is():
    own = replace(Precision.resolve("double"), name="mine")
    training = StochasticTraining(START, problem(precision=own), settings(steps=1), PAPER)
    assert training._rung is own
    training.state.precision = "double"
    assert training._rung == "double"


def test_a_preconditioner_is_kept_while_it_is_near(monkeypatch):
    """Of steps of 0.2 on the real line the second after it was built is too far away."""
    built = []
    plain = PivotedCholesky.build
    monkeypatch.setattr(
        PivotedCholesky, "build", lambda self, operator: built.append(operator) or plain(self, operator)
    )
    found = run(steps=7, learning_rate=0.2, preconditioner=PivotedCholesky(rank=20), gradient="hutchinson")
    assert len(found.history) == 7
    assert 2 <= len(built) <= 4  # Adam's steps are 0.2 at the most, and shorter after a turn
    built.clear()
    run(steps=4, learning_rate=1e-3, preconditioner=PivotedCholesky(rank=20))
    assert len(built) == 1


def test_solves_start_where_the_last_ones_were_heading(monkeypatch):
    training = StochasticTraining(START, problem(), settings(steps=3, learning_rate=0.05), PAPER)
    starts = []
    plain = evaluation.cg
    monkeypatch.setattr(evaluation, "cg", lambda *a, **k: (starts.append(k["x0"]), plain(*a, **k))[1])
    seen = []
    training.run(lambda step, hyperparameters: seen.append(training.state.solutions), lambda state: None)
    first, second, _ = seen
    assert starts[0] is None
    assert torch.equal(starts[1], first)
    share = (starts[2] - second) / (second - first)
    assert float(share.std()) < 1e-6  # one number for all
    assert 0.5 < float(share.mean()) <= 1.0  # Adam's steps hardly differ in length


def test_no_solve_is_carried_on_after_a_turn():
    training = StochasticTraining(START, problem(), settings(steps=2), PAPER)
    training.run(lambda step, hyperparameters: None, lambda state: None)
    state = training.state
    ahead = state.vector - state.before[0]
    state.vector = state.before[0] - ahead
    assert training.warm_start is state.solutions
    state.vector = state.before[0] + 10 * ahead
    torch.testing.assert_close(training.warm_start, state.solutions + state.secant[1])


def test_steps_by_neighbours_end_where_the_dense_likelihood_is_best():
    """Within what its error makes of the loss, which grows with the square of that."""
    rows = problem()
    options = {"gradient": "neighbours", "probes": 20, "optimiser": "lbfgs", "steps": 30, "tol": 1e-4}
    found = run(rows=rows, **options).hyperparameters
    optimum = run(rows=rows, method="cholesky", subset_iterations=200).hyperparameters
    losses = [
        dense_likelihood(hyperparameters, rows.x, rows.y, priors=PAPER).loss
        for hyperparameters in (found, optimum)
    ]
    # By the noise, which is known worst, gradients are off by 2e-3 here, and those of "pathwise" by 0.08: the
    # first ends 4e-7 above the optimum, the other, by three seeds, 2e-4 to 1e-3.
    assert losses[0] < losses[1] + 1e-5


@pytest.mark.parametrize("noise", [0.3, 1e-3])
def test_the_loss_by_neighbours_is_near_the_exact_one_though_they_may_be_above(noise):
    """P of neighbours is above A in places, where nothing but Ritz values bounds the spectrum."""
    rows, start = problem(), at(1.0 * Matern(1.5, lengthscale=[0.8, 1.2]), noise=noise, mean=[0.0])
    built = SparseInverseCholesky(neighbours=10).build(rows.operator(start, "double"))
    whitened = built.whiten(torch.as_tensor(rows.operator(start, "double").to_dense()))
    least = torch.linalg.eigvalsh(built.whiten(whitened.T.contiguous())).min()
    assert float(least) < 0.9
    exact = dense_likelihood(start, rows.x, rows.y, priors=PAPER).loss
    errors = []
    for preconditioner in (SparseInverseCholesky(neighbours=10), None):
        steps = []
        run(
            start,
            rows,
            steps=1,
            probes=20,
            tol=1e-5,
            max_iterations=1000,
            preconditioner=preconditioner,
            observe=lambda step, hyperparameters, steps=steps: steps.append(step),
        )
        assert abs(steps[0].loss - exact) < 4 * steps[0].loss_error
        errors.append(steps[0].loss_error)
    assert errors[0] < 0.5 * errors[1]


def test_few_rows_are_all_neighbours_and_leave_the_solver_nothing_but_rounding():
    found = run(rows=problem(60), gradient="neighbours", steps=3, tol=1e-2)
    exact = run(rows=problem(60), gradient="neighbours", steps=3, tol=1e-2, probes=1)
    assert all(step.note == "" and step.residual <= 1e-2 for step in found.history)
    for name, p in found.hyperparameters.named_parameters().items():
        other = exact.hyperparameters.named_parameters()[name].value
        # What is left is rounding in double, whatever the probes; the targets' solves differ within 1e-2.
        torch.testing.assert_close(p.value, other, rtol=1e-3, atol=1e-3)
