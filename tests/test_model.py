from __future__ import annotations

import gc
import json

import numpy as np
import pytest
import torch
from contracts import forked
from contracts.textbook import Textbook, points, targets

from halfgp.errors import DataWarning, FileError, InputError, MemoryLimitError, NotFittedError
from halfgp.kernels import RBF, Linear, Matern, White
from halfgp.model import ExactGP, LogLikelihood, NumericalError, SolveIteration
from halfgp.priors import Gamma
from halfgp.standardise import Standardisation
from halfgp.training import Step

N = 150
# In units of their own, so that what is not scaled back shows.
X = (points(N, 2) * torch.tensor([10.0, 0.01]) + torch.tensor([100.0, 0.0])).numpy()
Y = (30.0 * targets(points(N, 2), q=2) + torch.tensor([1000.0, -50.0])).numpy()
y = Y[:, 0]
NEW = (points(20, 2, seed=4) * torch.tensor([10.0, 0.01]) + torch.tensor([100.0, 0.0])).numpy()
QUICK = {"training__subset_iterations": 5}


@pytest.fixture(scope="module")
def one():
    return ExactGP(**QUICK).fit(X, y)


@pytest.fixture(scope="module")
def two():
    return ExactGP(kernel=1.0 * RBF([0.5, 0.5]) + White(0.1), **QUICK).fit(X, Y)


def book_of(model) -> tuple[Textbook, Standardisation]:
    """The textbook's model of the same rows, standardised."""
    problem = model.posterior.problem
    return Textbook(model.hyperparameters, problem.x, problem.y, problem.fixed_noise), model.y_scale


def standardised(new):
    scale = Standardisation.of(torch.from_numpy(X))
    return scale.apply(torch.as_tensor(new))


def test_predictions_come_back_in_the_units_of_the_user(one):
    book, scale = book_of(one)
    x = standardised(NEW)
    mean, std = one.predict(NEW, return_std=True)[:2]
    latent = one.predict(NEW, return_std=True, include_noise=False).std
    covariance = one.predict(NEW, return_cov=True).cov
    noise, unit = float(one.hyperparameters.noise.value), float(scale.scale)
    exact = book.covariance(x)
    np.testing.assert_allclose(mean, scale.undo(book.mean(x))[:, 0], rtol=1e-10)
    np.testing.assert_allclose(std, (exact.diagonal() + noise).sqrt() * unit, rtol=1e-9)
    np.testing.assert_allclose(latent, exact.diagonal().sqrt() * unit, rtol=1e-7)
    noisy = (exact + noise * torch.eye(20, dtype=torch.float64)) * unit**2
    np.testing.assert_allclose(covariance, noisy, rtol=0, atol=1e-9 * unit**2)
    assert mean.dtype == np.float64
    assert mean.shape == std.shape == (20,)


def test_several_targets_have_scales_of_their_own_and_white_is_noise(two):
    book, scale = book_of(two)
    x = standardised(NEW)
    mean, std = two.predict(NEW, return_std=True)[:2]
    covariance = two.predict(NEW, return_cov=True, include_noise=False).cov
    white = float(two.hyperparameters.kernel.kernels[1].variance)
    noise = float(two.hyperparameters.noise.value) + white
    exact = book.covariance(x)
    np.testing.assert_allclose(mean, scale.undo(book.mean(x)), rtol=1e-9)
    np.testing.assert_allclose(std, (exact.diagonal() + noise).sqrt()[:, None] * scale.scale, rtol=1e-9)
    np.testing.assert_allclose(covariance, exact * scale.scale.square()[:, None, None], rtol=0, atol=1e-7)
    assert covariance.shape == (2, 20, 20)
    assert two.sample(NEW, 3).shape == (20, 2, 3)


def test_known_noise_of_rows_is_in_the_users_units():
    variances = np.linspace(1.0, 900.0, N)
    model = ExactGP(**QUICK).fit(X, y, noise=variances)
    np.testing.assert_allclose(
        model.posterior.problem.fixed_noise, variances / float(model.y_scale.scale) ** 2
    )
    assert model.hyperparameters.noise is None
    book, scale = book_of(model)
    np.testing.assert_allclose(
        model.predict(NEW).mean, scale.undo(book.mean(standardised(NEW)))[:, 0], rtol=1e-9
    )
    with_noise, without = (model.predict(NEW, return_std=True, include_noise=b).std for b in (True, False))
    np.testing.assert_array_equal(with_noise, without)


def test_errors_come_with_the_prediction(one):
    mean, std, _, error = one.predict(NEW, return_std=True, return_error=True)
    assert isinstance(error, NumericalError)
    assert error.mean.shape == error.std.shape == mean.shape == std.shape
    assert 0 < error.mean.max() < 1e-6 * np.abs(mean).max()
    alone = one.predict(NEW, return_error=True)
    assert alone.error.std is None
    np.testing.assert_array_equal(alone.mean, mean)


def test_the_error_of_a_deviation_is_in_the_units_of_deviations():
    model = ExactGP(
        method="cg", variances__method="local", variances__neighbours=5, training__subset=50, **QUICK
    ).fit(X, y)
    few, error = (model.predict(NEW, return_std=True, return_error=True)[k] for k in (1, 3))
    book, scale = book_of(model)
    exact = (book.covariance(standardised(NEW)).diagonal() + model.hyperparameters.noise.value).sqrt()
    true = np.abs(few - (exact * scale.scale).numpy())
    assert np.mean(true) < 2 * np.mean(error.std)
    assert np.all(error.std <= few)


def test_chunks_do_not_change_predictions(one, monkeypatch):
    whole = one.predict(NEW, return_std=True, return_error=True)
    monkeypatch.setattr("halfgp.model.fitted.PREDICT_ROWS", 7)
    small = one.predict(NEW, return_std=True, return_error=True)
    np.testing.assert_allclose(small[0], whole[0], rtol=1e-13)
    np.testing.assert_allclose(small[1], whole[1], rtol=1e-10)
    assert one.predict(NEW[:0]).mean.shape == (0,)


def test_samples_scatter_about_the_mean_as_far_as_the_deviation(one):
    draws = one.sample(NEW, 400, seed=2)
    mean, std = one.predict(NEW, return_std=True, include_noise=False)[:2]
    assert draws.shape == (20, 400)
    assert np.all(np.abs(draws.mean(axis=1) - mean) < 4.5 * std / 20)
    np.testing.assert_allclose(draws.std(axis=1), std, rtol=4.5 / np.sqrt(800))
    np.testing.assert_allclose(one.sample(NEW[3:5], 400, seed=2), draws[3:5], rtol=1e-9)
    noisy = one.sample(NEW, 400, seed=2, include_noise=True) - draws
    noise = float(one.hyperparameters.noise.value) ** 0.5 * float(one.y_scale.scale)
    assert noisy.std() == pytest.approx(noise, rel=4.5 / np.sqrt(2 * noisy.size))


def test_the_likelihood_is_a_density_of_the_targets_as_given(two):
    book, scale = book_of(two)
    value = two.log_marginal_likelihood()
    assert isinstance(value, LogLikelihood)
    raw = torch.distributions.MultivariateNormal(torch.zeros(N, dtype=torch.float64), book.matrix)
    expected = 0.0
    for k in range(2):
        unit = scale.scale[k]
        centre = scale.undo(two.hyperparameters.mean.value.expand(1, 2))[0, k]
        scaled = torch.distributions.MultivariateNormal(centre.expand(N), raw.covariance_matrix * unit**2)
        expected += float(scaled.log_prob(torch.from_numpy(Y[:, k])))
    assert value.value == pytest.approx(expected, rel=1e-9)
    assert 0.0 < value.standard_error < 1e-9


def test_leaving_rows_out_is_to_fit_without_them(two):
    found = two.leave_one_out()
    assert found.mean.shape == found.std.shape == found.log_density.shape == (N, 2)
    book, scale = book_of(two)
    i = 31
    rest = torch.arange(N) != i
    without = Textbook(two.hyperparameters, book.x[rest], book.y[rest])
    mean = scale.undo(without.mean(book.x[i : i + 1]))[0]
    white = two.hyperparameters.kernel.kernels[1].variance + two.hyperparameters.noise.value
    std = (without.covariance(book.x[i : i + 1])[0, 0] + white).sqrt() * scale.scale
    np.testing.assert_allclose(found.mean[i], mean, rtol=1e-9)
    np.testing.assert_allclose(found.std[i], std.detach(), rtol=1e-9)
    density = torch.distributions.Normal(mean, std.detach()).log_prob(torch.from_numpy(Y[i]))
    np.testing.assert_allclose(found.log_density[i], density, rtol=1e-8)


@pytest.mark.parametrize(
    "options", [{"method": "cholesky"}, {"method": "cg", "solve__tol": 1e-6, "training__subset": 60}]
)
@pytest.mark.parametrize("known", [False, True])
def test_an_update_is_a_model_of_all_rows(options, known):
    noise = np.linspace(50.0, 400.0, N) if known else None
    parts = [None if noise is None else noise[part] for part in (slice(0, 100), slice(100, N))]
    model = ExactGP(**options, **QUICK).fit(X[:100], y[:100], noise=parts[0])
    hyperparameters, scale = model.hyperparameters, model.y_scale
    model.update(X[100:], y[100:], noise=parts[1])
    assert model.hyperparameters is hyperparameters
    assert model.y_scale is scale
    assert model.report.rows == N
    fixed = None if noise is None else torch.from_numpy(noise) / scale.scale[0] ** 2
    x = model.x_scale.apply(torch.from_numpy(X))
    book = Textbook(hyperparameters, x, scale.apply(torch.from_numpy(y)[:, None]), fixed)
    expected = scale.undo(book.mean(model.x_scale.apply(torch.from_numpy(NEW))))[:, 0]
    tolerance = 1e-9 if options["method"] == "cholesky" else 1e-4
    np.testing.assert_allclose(model.predict(NEW).mean, expected, rtol=0, atol=tolerance * float(scale.scale))


def test_an_update_over_the_limit_of_cholesky_goes_over_to_cg(monkeypatch):
    monkeypatch.setattr("halfgp.choices.CHOLESKY_ROWS", 120)
    model = ExactGP(**QUICK).fit(X[:100], y[:100])
    assert model.report.method == "cholesky"
    before = model.predict(NEW).mean
    model.update(X[100:], y[100:])
    assert model.report.method == "cg"
    assert not np.array_equal(model.predict(NEW).mean, before)


def test_bad_updates_change_nothing(one, two):
    before = two.predict(NEW).mean
    for model, arguments, message in [
        (two, (X[:, :1], Y), "`X` must have 2 columns, as in `fit`; got 1"),
        (two, (X, y), "`y` must have 2 targets, as in `fit`; got 1"),
        (two, (X, Y[:-1]), r"`y` must have shape \(150,\) or \(150, q\)"),
        (one, (X, y, np.ones(N)), "`noise` must be given to `update` exactly if it was given to `fit`"),
    ]:
        with pytest.raises(InputError, match=message):
            model.update(*arguments)
    np.testing.assert_array_equal(two.predict(NEW).mean, before)
    assert two.predict(NEW).mean.shape == (20, 2)


def test_an_update_with_a_column_keeps_the_shape_of_fit():
    model = ExactGP(**QUICK).fit(X[:100], y[:100])
    model.update(X[100:], y[100:, None])
    assert model.predict(NEW).mean.shape == (20,)


def test_known_noise_that_is_zero_is_refused_in_fit_and_in_update():
    model = ExactGP(**QUICK).fit(X[:100], y[:100], noise=np.ones(100))
    zero = np.ones(50)
    zero[3] = 0.0
    with pytest.raises(InputError, match="`noise` must be positive for every row; got 0"):
        model.update(X[100:], y[100:], noise=zero)
    with pytest.raises(InputError, match="`noise` must be positive for every row; got 0"):
        ExactGP().fit(X[:50], y[:50], noise=zero)
    with pytest.raises(InputError, match=r"goes with one target; got 2. Fit one model for each"):
        ExactGP().fit(X, Y, noise=np.ones(N))


def test_rows_without_a_target_are_left_out_with_a_warning():
    holes = Y.copy()
    holes[[3, 17]] = np.nan
    whole = np.delete(np.arange(N), [3, 17])
    with pytest.warns(DataWarning, match=r"2 of 150 rows have no target \(NaN in `y`\)") as caught:
        model = ExactGP(**QUICK).fit(X, holes)
    assert caught[0].filename == __file__
    assert model.report.dropped == 2
    assert model.report.rows == N - 2
    np.testing.assert_array_equal(
        model.predict(NEW).mean, ExactGP(**QUICK).fit(X[whole], Y[whole]).predict(NEW).mean
    )
    with pytest.warns(DataWarning, match="1 of 2 rows") as caught:
        model.update(X[:2], np.array([[1.0, 2.0], [np.nan, np.nan]]))
    assert caught[0].filename == __file__
    assert model.report.rows == N - 1
    with pytest.raises(
        InputError, match=r"`y` has no row with a target, of 150. There is nothing to learn from"
    ):
        ExactGP().fit(X, np.full(N, np.nan))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X[:, 0], y), r"`X` must have shape \(n, d\); got \(150,\). Use `X\[:, None\]`"),
        ((X, y[:-1]), r"`y` must have shape \(150,\) or \(150, q\), one row for each of `X`; got \(149,\)"),
        ((np.where(X > 110, np.nan, X), y), "`X` must be finite; got nan in row"),
        ((X, np.where(y > 1020, np.inf, y)), "`y` must not hold infinity"),
        ((X, y, -np.ones(N)), "`noise` must be finite and not negative; got -1"),
        ((X, y, np.ones(3)), r"`noise` must be a number or of shape \(150,\)"),
        ((X[:0], y[:0]), "`y` has no row with a target, of 0"),
        ((X.astype(str), y), "`X` must hold real numbers"),
    ],
)
def test_bad_rows_are_refused_before_any_work(arguments, message):
    calls = []
    with pytest.raises(InputError, match=message):
        ExactGP().fit(*arguments, callbacks=[calls.append])
    assert not calls


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"training__steps": -1}, "`training__steps` must be an integer of at least 0"),
        ({"kernel": "matern"}, "`kernel` must be a kernel such as .*; got 'matern'"),
        ({"kernel": 3}, "`kernel` must be a name or a kernel such as `RBF\\(\\)`; got 3"),
        (
            {"kernel": RBF([1.0, 2.0, 3.0])},
            "`lengthscale` must be a single number or one per active column, 2",
        ),
        (
            {"priors": {"lengthscales": Gamma(1.0, 1.0)}},
            "positive parameters of the model, .*; got 'lengthscales'",
        ),
        (
            {"solve__preconditioner": "nystrom", "solve__rank": -3},
            "`solve__rank` must be an integer of at least 0",
        ),
    ],
)
def test_bad_options_are_refused_at_fit(options, message):
    with pytest.raises(InputError, match=message):
        ExactGP(**options).fit(X, y)


def test_an_unknown_option_is_refused_at_once():
    with pytest.raises(InputError, match="There is no option `lenghtscale`"):
        ExactGP(lenghtscale=1.0)


def test_bad_questions_are_refused(one):
    with pytest.raises(InputError, match="`X` must have 2 columns, as in `fit`; got 3"):
        one.predict(np.ones((4, 3)))
    with pytest.raises(InputError, match="`return_std` and `return_cov` exclude each other"):
        one.predict(NEW, return_std=True, return_cov=True)
    for samples in (0, 1.5, True):
        with pytest.raises(InputError, match="`samples` must be a positive integer"):
            one.sample(NEW, samples)


@pytest.mark.parametrize("question", ["predict", "sample", "update", "leave_one_out", "hyperparameters"])
def test_nothing_is_known_before_fit(question):
    model = ExactGP()
    with pytest.raises(NotFittedError, match=r"This ExactGP is not fitted yet. Call `fit` first"):
        {
            "predict": lambda: model.predict(NEW),
            "sample": lambda: model.sample(NEW),
            "update": lambda: model.update(X, y),
            "leave_one_out": model.leave_one_out,
            "hyperparameters": lambda: model.hyperparameters,
        }[question]()


def test_a_fit_that_fails_leaves_the_model_as_it_was(monkeypatch):
    model = ExactGP(**QUICK).fit(X, y)
    before = model.predict(NEW).mean

    def fail(*arguments, **options):
        raise InputError("no")

    monkeypatch.setattr("halfgp.model.fitting.train", fail)
    with pytest.raises(InputError, match="no"):
        model.fit(7.0 * X[:50] + 3.0, -5.0 * Y[:50])
    np.testing.assert_array_equal(model.predict(NEW).mean, before)


@pytest.mark.parametrize(
    ("stage", "options"), [("subset", {}), ("cg", {}), ("cholesky", {"method": "cholesky"})]
)
def test_ctrl_c_leaves_a_model_that_predicts(stage, options):
    def stop(event):
        if isinstance(event, Step) and event.stage == stage and event.index == 2:
            raise KeyboardInterrupt

    choice = {"method": "cg", "training__subset": 60, "training__steps": 5, "training__probes": 4, **options}
    model = ExactGP(**choice).fit(X, y, callbacks=[stop])
    assert model.report.interrupted
    assert [step.stage for step in model.history].count(stage) == 3
    mean, std = model.predict(NEW, return_std=True)[:2]
    assert np.isfinite(mean).all()
    assert (std > 0).all()
    # It has learned something: less than half of the variance is left.
    assert np.mean((model.predict(X).mean - y) ** 2) < 0.5 * np.var(y)


def test_callbacks_see_every_step():
    seen = []
    options = {
        "method": "cg",
        "training__subset": 60,
        "training__steps": 2,
        "training__probes": 3,
        "variances__method": "local",
        **QUICK,
    }
    model = ExactGP(**options).fit(X, y, callbacks=[seen.append])
    steps = [event for event in seen if isinstance(event, Step)]
    assert steps == model.history
    assert model.report.steps == len(steps)
    assert {step.stage for step in model.history} == {"subset", "neighbours", "cg"}
    assert all(step.hyperparameters["noise"] > 0 for step in steps)
    assert seen[len(steps) :]  # then come the iterations of the last solve
    assert all(isinstance(event, SolveIteration) for event in seen[len(steps) :])


@pytest.mark.parametrize("callbacks", [None, print, [3]])
def test_callbacks_that_are_none_are_refused(callbacks):
    with pytest.raises(InputError, match="`callbacks` must be a sequence of functions of one event"):
        ExactGP(**QUICK).fit(X, y, callbacks=callbacks)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_points_are_held_in_double_once_beside_those_of_the_caller(dtype):
    """As standardised; no copy in the units of the user is there during the work."""
    rows, held = X[:, [0, 1, 0, 1, 0]].astype(dtype), set()  # of a shape that nothing else has

    def watch(event):
        for found in gc.get_objects():
            if type(found) is torch.Tensor and found.shape == rows.shape and found.dtype == torch.float64:
                held.add(found.data_ptr())

    ExactGP(method="cg", training__subset=50, training__steps=0, **QUICK).fit(rows, y, callbacks=(watch,))
    assert len(held - {rows.ctypes.data}) == 1


def test_unstandardised_targets_far_from_zero_are_fitted():
    model = ExactGP(standardise_y=False, outputscale=900.0, noise=100.0).fit(X, y)
    assert model.y_scale.scale.tolist() == [1.0]
    assert np.mean((model.predict(X).mean - y) ** 2) < 0.3 * np.var(y)
    far = np.array([[1e6, 1e6]])
    assert abs(model.predict(far).mean[0] - y.mean()) < 3 * y.std()


def test_a_mean_of_zero_is_not_learned():
    model = ExactGP(mean="zero", standardise_y=False, **QUICK).fit(X, y - y.mean() + 5.0)
    assert model.hyperparameters.mean is None
    assert model.predict(np.array([[1e6, 1e6]])).mean[0] == 0.0


def test_constant_targets_do_no_harm():
    model = ExactGP(**QUICK).fit(X, np.full(N, 3.0))
    mean, std = model.predict(NEW, return_std=True)[:2]
    np.testing.assert_allclose(mean, 3.0, atol=1e-8)
    assert np.isfinite(std).all()


@pytest.mark.parametrize("standardise", [True, False])
@pytest.mark.parametrize("kernel", ["matern32", 1.0 * RBF([1.0, 1.0, 1.0, 1.0])], ids=["name", "object"])
def test_constant_columns_are_left_out_and_said_so(kernel, standardise):
    """They ranked as most relevant, and another value in a row to come took the mean away."""

    def padded(x, first, last):
        return np.hstack([np.full((len(x), 1), first), x, np.full((len(x), 1), last)])

    plain = X / [10.0, 0.01]
    options = {**QUICK, "standardise_X": standardise}
    with pytest.warns(DataWarning, match=r"2 of the 4 columns .* left out.*: 0, 3 \(from 0\)"):
        model = ExactGP(kernel=kernel, **options).fit(padded(plain, 7.0, 0.1 + 0.2), y)
    new = NEW / [10.0, 0.01]
    same, other = (
        model.predict(padded(new, *last), return_std=True)[:2] for last in ((7.0, 0.3), (1e6, -5.0))
    )
    np.testing.assert_array_equal(same[0], other[0])
    np.testing.assert_array_equal(same[1], other[1])
    assert model.relevance[0] == model.relevance[3] == 0.0
    assert model.relevance.max() == 1.0
    if isinstance(kernel, str):
        expected = ExactGP(**options).fit(plain, y).predict(new, return_std=True)[:2]
        np.testing.assert_allclose(same, expected, rtol=1e-9)
        assert model.hyperparameters.kernel.kernel.lengthscale.shape == (2,)


def test_values_that_differ_by_rounding_alone_are_constant():
    x = np.column_stack([X[:, 0], np.where(np.arange(N) % 2, 0.3, 0.1 + 0.2)])
    with pytest.warns(DataWarning, match="1 of the 2 columns"):
        ExactGP(**QUICK).fit(x, y)


def test_columns_that_are_all_constant_leave_the_mean():
    with pytest.warns(DataWarning, match="2 of the 2 columns"):
        model = ExactGP(**QUICK).fit(np.ones((N, 2)), y)
    mean, std = model.predict(np.array([[1.0, 1.0], [9.0, 9.0]]), return_std=True)[:2]
    np.testing.assert_allclose(mean, y.mean(), rtol=1e-3)
    assert mean[0] == mean[1]
    assert std[0] == pytest.approx(y.std(), rel=0.1)


def test_one_row_is_enough():
    model = ExactGP(**QUICK).fit(X[:1], y[:1])
    assert model.predict(X[:1]).mean[0] == pytest.approx(y[0], rel=1e-6)
    assert model.leave_one_out().mean.shape == (1,)


def test_relevance_is_by_column():
    model = ExactGP(kernel=1.0 * Matern(1.5, lengthscale=[0.5, 2.0], active_dims=[1, 0]), **QUICK).fit(X, y)
    lengthscale = model.hyperparameters.kernel.kernel.lengthscale
    expected = np.array([float(1 / lengthscale[1]), float(1 / lengthscale[0])])
    np.testing.assert_allclose(model.relevance, expected / expected.max())
    assert model.relevance.max() == 1.0
    assert ExactGP(ard=False, **QUICK).fit(X, y).relevance is None
    assert ExactGP(kernel=1.0 * Linear() + RBF(1.0), **QUICK).fit(X, y).relevance is None


def test_a_seed_decides_everything():
    options = {"method": "cg", "training__subset": 60, "training__steps": 2, "training__probes": 3, **QUICK}
    one, same = (ExactGP(**options, random_state=4).fit(X, y).predict(NEW).mean for _ in range(2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, ExactGP(**options, random_state=5).fit(X, y).predict(NEW).mean)


def test_a_checkpoint_where_nothing_can_be_written_is_refused_before_any_work(tmp_path):
    calls = []
    path = tmp_path / "absent" / "fit.ckpt"
    with pytest.raises(
        FileError, match=r"`checkpoint` needs the directory .*absent`, which is not there. Create it"
    ):
        ExactGP(checkpoint=path, **QUICK).fit(X, y, callbacks=[calls.append])
    assert not calls


def test_torch_and_lists_are_fine_too(one):
    for points_, targets_ in ((torch.from_numpy(X), torch.from_numpy(y)), (X.tolist(), y.tolist())):
        np.testing.assert_array_equal(
            ExactGP(**QUICK).fit(points_, targets_).predict(NEW).mean, one.predict(NEW).mean
        )


MILLION = """
import json, sys
import numpy as np
import torch
torch.set_num_threads(1)
from halfgp.model import ExactGP

from halfgp.memory import peak_memory as peak

rng = np.random.default_rng(0)
X = rng.standard_normal((60, 20), dtype=np.float32)
model = ExactGP(ard=False, training__subset_iterations=2).fit(X, X[:, 0])
new = np.zeros((1_000_000, 20), dtype=np.float32)
new += X[0]
model.predict(new[:100])
before = peak()
mean = model.predict(new).mean
print(json.dumps([peak() - before, mean.nbytes]))
"""


def test_a_million_rows_take_the_memory_of_their_results():
    """Beside the results there are chunks, of 65,536 rows, and no copy of all rows in double."""
    growth, result = json.loads(forked.run(MILLION, check=True).stdout)
    assert result == 8_000_000
    # A copy would come on top of the chunks, so that less than one tells that there is none.
    assert growth < 3 * result + 1_000_000 * 20 * 8


def test_noise_that_depends_on_the_point_is_that_of_the_point():
    """It was that of the first row, whatever was asked for."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0.1, 10.0, (300, 1))
    targets = np.sin(x[:, 0]) + 0.1 * x[:, 0] * rng.standard_normal(300)
    kernel = 1.0 * RBF(1.0) + White(0.01) * Linear(1.0)
    model = ExactGP(kernel, standardise_X=False, **QUICK).fit(x, targets)
    new = np.array([[0.2], [9.9]])
    std, latent = (model.predict(new, return_std=True, include_noise=noisy).std for noisy in (True, False))
    noise = np.sqrt(std**2 - latent**2)
    assert noise[1] > 5 * noise[0]
    draws = model.sample(new, 4000, include_noise=True, joint=True) - model.sample(new, 4000, joint=True)
    np.testing.assert_allclose(draws.std(axis=1), noise, rtol=4.5 / np.sqrt(8000))


def test_the_noise_starts_where_it_is_said_to_the_last_bit():
    start = ExactGP(**{**QUICK, "training__subset_iterations": 0, "method": "cholesky", "noise": 0.1}).fit(
        X, y
    )
    assert float(start.hyperparameters.noise.value) == 0.1


def test_threads_are_those_of_the_exact_stage_and_then_as_before():
    seen = []

    def look(event):
        seen.append(torch.get_num_threads())

    before = torch.get_num_threads()
    model = ExactGP(**QUICK, threads=before + 1).fit(X, y, callbacks=[look])
    assert set(seen) == {before + 1}
    assert torch.get_num_threads() == before

    def fail(event):
        raise RuntimeError

    with pytest.raises(RuntimeError):
        ExactGP(**QUICK, threads=before + 1).fit(X, y, callbacks=[fail])
    model.predict(X)
    assert torch.get_num_threads() == before


def test_an_update_keeps_to_its_limit():
    model = ExactGP(**QUICK, memory_limit="600 MB").fit(X, y)
    report = model.report
    rng = np.random.default_rng(0)
    with pytest.raises(MemoryLimitError, match="rows with 2 features needs about"):
        model.update(rng.standard_normal((100_000, 2)), rng.standard_normal(100_000))
    assert model.report is report
    model.update(X[:3], y[:3])


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, True])
def test_seeds_that_are_none_are_refused(seed):
    with pytest.raises(InputError, match="`seed` must be an integer from 0 to"):
        ExactGP(**QUICK).fit(X[:30], y[:30]).sample(X[:3], seed=seed)
