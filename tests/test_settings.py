from __future__ import annotations

import numpy as np
import pytest
import torch

from halfgp.errors import HalfGPError, InputError
from halfgp.kernels import RBF
from halfgp.preconditioners import PivotedCholesky
from halfgp.priors import Gamma
from halfgp.settings import Settings, SolveOptions, as_bytes


def test_the_defaults_are_fine_and_so_are_objects():
    Settings().check()
    Settings(
        kernel=RBF(),
        priors={"lengthscale": Gamma(1.0, 2.0)},
        solve=SolveOptions(preconditioner=PivotedCholesky(rank=5), rank=0),
        memory_limit="2GB",
        lengthscale=0.3,
        threads=2,
    ).check()
    Settings(solve=SolveOptions(preconditioner=None), priors=None).check()


def test_numbers_of_numpy_are_numbers():
    given = {"training__steps": np.int64(3), "solve__rank": np.int32(7), "random_state": np.int64(1)}
    Settings(noise=np.float32(0.2)).with_params(**given).check()


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("mean", "cubic", "`mean` must be one of zero, constant, linear; got 'cubic'"),
        ("method", "exact", "`method` must be one of auto, cholesky, cg"),
        ("training__optimiser", "sgd", "`training__optimiser` must be one of adam, lbfgs"),
        (
            "training__gradient",
            "exact",
            "`training__gradient` must be one of pathwise, hutchinson, neighbours",
        ),
        ("variances__method", "exact", "`variances__method` must be one of auto, cholesky, local"),
        ("solve__preconditioner", "ilu", "`solve__preconditioner` must be one of auto, pivoted_cholesky"),
        ("solve__preconditioner", 3, "`solve__preconditioner` must be a name, None or a recipe"),
        ("training__subset", -1, "`training__subset` must be an integer of at least 0; got -1"),
        ("training__probes", 0, "`training__probes` must be an integer of at least 1"),
        ("training__steps", 2.0, "`training__steps` must be an integer"),
        ("variances__neighbours", True, "`variances__neighbours` must be an integer"),
        ("solve__rank", -1, "`solve__rank` must be an integer of at least 0, or None"),
        ("threads", 0, "`threads` must be an integer of at least 1, or None"),
        ("random_state", None, "`random_state` must be an integer from 0 to [0-9]*; got None"),
        ("random_state", -1, "`random_state` must be an integer from 0"),
        ("random_state", 2**63, "`random_state` must be an integer from 0"),
        ("threads", 10**9, "`threads` must be at most 1024; got 1000000000"),
        ("noise", 0.0, "`noise` must be a positive finite number; got 0.0"),
        ("noise", "0.1", "`noise` must be a positive finite number; got '0.1'"),
        ("noise", [0.1], "`noise` must be a positive finite number"),
        ("noise_floor", float("nan"), "`noise_floor` must be a positive finite number"),
        ("lengthscale", float("inf"), "`lengthscale` must be a positive finite number"),
        ("training__learning_rate", True, "`training__learning_rate` must be a positive finite number"),
        ("training__tol", -1e-3, "`training__tol` must be a positive finite number"),
        ("noise_floor", 0.2, "`noise` must start above `noise_floor`, 0.2; got 0.1"),
        ("device", "tpu", '`device` must be "auto", "cpu", "cuda"'),
        ("device", 3, '`device` must be "auto", "cpu", "cuda"'),
        ("ard", "yes", "`ard` must be True or False"),
        ("checkpoint", 3, "`checkpoint` must be a path or None"),
        ("priors", "uniform", '`priors` must be "weak", "paper", None, or a mapping'),
        ("precision", "quarter", "precision"),
        ("solve", 3, "`solve` must be a `SolveOptions`, or None for its defaults; got 3"),
        ("memory_limit", "much", "`memory_limit` must be a number of bytes"),
    ],
)
def test_what_cannot_be_is_refused_by_name(option, value, message):
    with pytest.raises(HalfGPError, match=message):
        Settings().with_params(**{option: value}).check()


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (None, None),
        (2e9, 2 * 10**9),
        (np.int64(7), 7),
        (1024, 1024),
        ("1024", 1024),
        ("2GB", 2 * 10**9),
        ("2 gb", 2 * 10**9),
        ("1.5 GiB", 3 * 2**29),
        ("500M", 500 * 10**6),
        ("3Ki", 3072),
        ("1e9", 10**9),
        ("2.TB", 2 * 10**12),
    ],
)
def test_bytes_are_read(limit, expected):
    assert as_bytes(limit) == expected


@pytest.mark.parametrize(
    "limit",
    ["", "GB", "2 XB", "-1GB", "1.2.3GB", ".", "2 i", "2ib", "nan", "1e400", 0, -5, True, [], float("nan")],
)
def test_what_is_no_number_of_bytes_is_refused(limit):
    with pytest.raises(
        InputError, match='`memory_limit` must be a number of bytes, or text such as "2GB"; got'
    ):
        as_bytes(limit)


def test_all_values_by_name():
    values = Settings(noise=0.3).as_dict()
    assert values["noise"] == 0.3
    assert Settings(**values) == Settings(noise=0.3)


def test_a_gpu_that_is_not_there_is_refused_and_one_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=r"torch sees no GPU.*halfgp doctor"):
        Settings(device="cuda:1").check()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert Settings(device="cuda:1").check().device == "cuda:1"
