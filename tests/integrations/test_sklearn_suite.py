"""scikit-learn's own tests of its Gaussian process, on ours: those that apply, and why others do not."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn
import sklearn.gaussian_process.tests.test_gpr as theirs

from halfgp import GPRegressor


class Face(GPRegressor):
    """`GPRegressor` with the arguments, the defaults and the return values of scikit-learn's regressor."""

    def __init__(self, kernel=None, *, alpha=1e-10, normalize_y=False, random_state=None, n_targets=None):
        if kernel is None:
            kernel = theirs.C(1.0, "fixed") * theirs.RBF(1.0, "fixed")
        super().__init__(
            kernel, standardise_X=False, standardise_y=normalize_y, mean="zero", priors=None, random_state=0
        )
        self.alpha, self.normalize_y = alpha, normalize_y

    def fit(self, X, y):
        scale = np.std(y) if self.normalize_y and np.std(y) > 0 else 1.0
        return super().fit(X, y, np.broadcast_to(self.alpha * scale**2, len(X)))


APPLIES = (
    "test_duplicate_input",
    "test_gpr_interpolation",
    "test_gpr_predict_no_cov_no_std_return",
    "test_large_variance_y",
    "test_predict_cov_vs_std",
    "test_sample_statistics",
    "test_y_normalization",
)
DOES_NOT = {
    "test_anisotropic_kernel": "asks for the theta of scikit-learn's kernel; `kernel_` is ours",
    "test_bound_check_fixed_hyperparameter": "about a warning of scikit-learn's optimiser",
    "test_constant_target": "looks at private attributes of scikit-learn's class",
    "test_converged_to_local_maximum": "asks for the theta of scikit-learn's kernel",
    "test_custom_optimizer": "the optimiser is `training__search`, tested in test_sklearn.py",
    "test_gpr_consistency_std_cov_non_invertible_kernel": "a singular matrix: refused, with a word",
    "test_gpr_correct_error_message": "about the text of scikit-learn's error",
    "test_gpr_fit_error": "about the text of scikit-learn's errors",
    "test_gpr_interpolation_structured": "rows of text; ours are numbers",
    "test_gpr_lml_error": "a gradient without theta is that at `theta_`, no error",
    "test_gpr_predict_error": "about the text of scikit-learn's error",
    "test_gpr_predict_input_not_modified": "a kernel written for the test",
    "test_lml_gradient": "asks for the theta of scikit-learn's kernel; beside theirs in test_sklearn.py",
    "test_lml_improving": "asks for the theta of scikit-learn's kernel",
    "test_lml_precomputed": "asks for the theta of scikit-learn's kernel",
    "test_lml_without_cloning_kernel": "about copies of scikit-learn's kernel",
    "test_n_targets_error": "there is no prediction before a fit, and no `n_targets`",
    "test_no_fit_default_predict": "there is no prediction before a fit: `NotFittedError`",
    "test_no_optimizer": "`optimizer=None` is a kernel of fixed values here",
    "test_predict_shape_with_prior": "there is no prediction before a fit",
    "test_predict_shapes": "one target as (n, 1) comes back as (n, 1); known noise goes with one target",
    "test_prior": "there is no prediction before a fit",
    "test_random_starts": "restarts are `training__restarts`, tested in test_sklearn.py",
    "test_sample_y_shape_with_prior": "there is no prediction before a fit",
    "test_sample_y_shapes": "one target as (n, 1) comes back as (n, 1); known noise goes with one target",
    "test_solution_inside_bounds": "asks for the theta of scikit-learn's kernel; ours in test_sklearn.py",
    "test_warning_bounds": "about a warning of scikit-learn's optimiser",
    "test_y_multioutput": "known noise goes with one target",
}


def test_every_test_of_theirs_is_in_one_of_the_lists():
    known = {*APPLIES, *DOES_NOT}
    there = {name for name in vars(theirs) if name.startswith("test_")}
    if sklearn.__version__.startswith("1.9"):  # the version that the lists were made for
        assert there == known


@pytest.fixture(autouse=True)
def _on_ours(monkeypatch):
    monkeypatch.setattr(theirs, "GaussianProcessRegressor", Face)


for _name in APPLIES:
    globals()[_name] = getattr(theirs, _name)
