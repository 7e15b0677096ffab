"""Mean functions, and how predictions change with the features."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import halfgp
from halfgp import RBF, ExactGP, GPRegressor
from halfgp.errors import FileError, InputError
from halfgp.model.trend import LinearTrend
from halfgp.persistence import read_file, write_file


def rows(n=60, d=2, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, d))
    return x, np.sin(3 * x).sum(axis=1) + 0.05 * rng.standard_normal(n)


def test_a_function_is_taken_off_and_added_again():
    x, y = rows()
    x_new, _ = rows(10, seed=1)

    def mean(points):
        return 100.0 * points[:, 0] - 7.0

    about = GPRegressor(mean="zero").fit(x, y)
    gp = GPRegressor(mean=mean).fit(x, y + mean(x))
    np.testing.assert_allclose(gp.predict(x_new), about.predict(x_new) + mean(x_new), rtol=1e-6)
    np.testing.assert_allclose(gp.leave_one_out().mean, about.leave_one_out().mean + mean(x), rtol=1e-5)
    draws = gp.sample_y(x_new, 3, random_state=0) - about.sample_y(x_new, 3, random_state=0)
    np.testing.assert_allclose(draws, np.repeat(mean(x_new)[:, None], 3, axis=1), rtol=1e-4)


def test_a_plane_is_found_far_from_the_rows():
    x, y = rows(100)
    plane = 5.0 * x[:, 0] - 3.0 * x[:, 1] + 2.0
    far = np.array([[50.0, -20.0]])
    gp = GPRegressor(mean="linear").fit(x, 0.1 * y + plane)
    # A tenth of a sine has a slope of its own: about 0.2.
    np.testing.assert_allclose(gp.predict(far), [5.0 * 50 + 3.0 * 20 + 2.0], rtol=0.1)


def test_more_rows_are_about_the_same_mean():
    x, y = rows(80)
    whole = ExactGP(mean="linear").fit(x[:60], y[:60]).update(x[60:], y[60:])
    assert whole.report is not None
    assert np.isfinite(whole.predict(x).mean).all()
    assert np.abs(whole.predict(x[60:]).mean - y[60:]).mean() < 0.2


def test_what_is_no_mean_is_refused(tmp_path):
    x, y = rows()
    with pytest.raises(InputError, match="mean"):
        GPRegressor(mean="quadratic").fit(x, y)
    with pytest.raises(InputError, match="shape"):
        GPRegressor(mean=lambda points: np.ones(3)).fit(x, y)
    with pytest.raises(InputError, match="finite"):
        GPRegressor(mean=lambda points: np.full(len(points), np.nan)).fit(x, y)
    with pytest.raises(InputError, match=r"`mean` must be a name.*Take it off the targets"):
        GPRegressor(mean=lambda points: points[:, 0]).fit(x, y).save(tmp_path / "model.safetensors")
    assert not (tmp_path / "model.safetensors").exists()


def test_a_plane_is_stored_with_its_model(tmp_path):
    x, y = rows(100)
    both = np.stack([y + 5.0 * x[:, 0], y - 3.0], axis=1)
    path = tmp_path / "model.safetensors"
    gp = GPRegressor(mean="linear").fit(x, both)
    gp.save(path)
    loaded = halfgp.load(path)
    far = 20.0 * x[:7]
    np.testing.assert_array_equal(loaded.predict(far), gp.predict(far))
    np.testing.assert_array_equal(
        loaded.update(x[:3], both[:3]).predict(far), gp.update(x[:3], both[:3]).predict(far)
    )


@pytest.mark.parametrize("change", ["slopes", "level", "mean"])
def test_a_file_whose_plane_is_not_whole_is_refused(tmp_path, change):
    path = tmp_path / "model.safetensors"
    GPRegressor(mean="linear").fit(*rows()).save(path)
    stored = read_file(path, "model")
    header, tensors = dict(stored.header), dict(stored.tensors)
    if change == "mean":
        header["settings"] = {**header["settings"], "mean": "zero"}
    else:
        del tensors[f"trend.{change}"]
    write_file(path, "model", header, tensors)
    with pytest.raises(FileError, match="trend"):
        halfgp.load(path)


@pytest.mark.parametrize("options", [{}, {"mean": "linear"}, {"method": "cg"}, {"kernel": 1.0 * RBF()}])
def test_gradients_are_those_of_differences(options):
    x, y = rows(120)
    scales = np.array([1.0, 30.0])
    gp = GPRegressor(**options).fit(x * scales, 4.0 * y)
    x_new = rows(5, seed=1)[0] * scales
    slope, change = gp.predict_gradient(x_new)
    assert slope.shape == change.shape == x_new.shape
    for k in range(2):
        step = np.zeros(2)
        step[k] = 1e-4 * scales[k]
        (above, wider), (below, narrower) = (gp.predict(x_new + s, return_std=True) for s in (step, -step))
        size = np.abs(slope[:, k]).max()
        # Single precision of the route by products is 1e-7 of a value over a step of 2e-4.
        np.testing.assert_allclose(slope[:, k], (above - below) / (2 * step[k]), rtol=5e-3, atol=5e-3 * size)
        if "method" not in options:  # whose variances are local: the gradient is that of exact ones
            size = np.abs(change[:, k]).max()
            differences = (wider - narrower) / (2 * step[k])
            np.testing.assert_allclose(change[:, k], differences, rtol=2e-2, atol=2e-2 * size)


def test_gradients_of_several_targets():
    x, y = rows()
    slope, change = GPRegressor().fit(x, np.stack([y, 2 * y], axis=1)).predict_gradient(x[:4])
    assert slope.shape == change.shape == (4, 2, 2)
    np.testing.assert_allclose(slope[:, :, 1], 2 * slope[:, :, 0], rtol=1e-3, atol=1e-3 * np.abs(slope).max())


def test_a_level_that_is_known_is_taken_off_and_stored(tmp_path):
    x, y = rows()
    x_new, _ = rows(10, seed=1)
    path = tmp_path / "model.safetensors"
    function = GPRegressor(mean=lambda points: np.full(len(points), 7.0)).fit(x, y + 7.0)
    gp = GPRegressor(mean=7).fit(x, y + 7.0)
    np.testing.assert_array_equal(gp.predict(x_new), function.predict(x_new))
    gp.save(path)
    loaded = halfgp.load(path)
    np.testing.assert_array_equal(loaded.predict(x_new), gp.predict(x_new))
    assert loaded.mean == 7.0
    for wrong in (np.nan, np.inf, True, None):
        with pytest.raises(InputError, match="`mean`"):
            GPRegressor(mean=wrong).fit(x, y)


def test_slopes_are_the_least_where_rows_leave_a_choice():
    """A column that comes twice has half of the slope in each, and one that is constant has none."""
    x = torch.from_numpy(rows(50)[0])
    doubled = torch.cat([x[:, :1], x[:, :1], torch.full((50, 1), 2.5, dtype=torch.float64)], dim=1)
    plane = LinearTrend.through(doubled, 3.0 * x[:, :1] + 1.0)
    wanted = torch.tensor([[1.5], [1.5], [0.0]], dtype=torch.float64)
    torch.testing.assert_close(plane.slopes, wanted, rtol=0.0, atol=1e-12)
    torch.testing.assert_close(plane(doubled), 3.0 * x[:, :1] + 1.0)
