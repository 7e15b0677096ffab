"""The backend that serves is the one asked for, or the best there is."""

from __future__ import annotations

import warnings

import pytest
import torch

import halfgp.backends as registry
from halfgp.backends import available, get_backend, is_available
from halfgp.backends.reference import ReferenceBackend
from halfgp.errors import BackendError, BackendWarning, InputError

CPU = torch.device("cpu")


def test_a_backend_is_found_by_name_or_is_itself() -> None:
    assert get_backend("reference", CPU).name == "reference"
    mine = ReferenceBackend("mine")
    assert get_backend(mine, CPU) is mine
    assert "reference" in available()


@pytest.mark.parametrize("backend", ["gpu", "", 3, None])
def test_anything_else_is_refused(backend: object) -> None:
    with pytest.raises(InputError, match="`backend` must be"):
        get_backend(backend, CPU)  # type: ignore[arg-type]


@pytest.fixture
def no_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that never built it."""
    load = registry._load

    def load_python_only(name: str) -> registry.Backend:
        if name == "cpu":
            raise ImportError("not built")
        return load(name)

    monkeypatch.setattr(registry, "_load", load_python_only)
    is_available.cache_clear()
    registry._warn_that_it_is_slow.cache_clear()


@pytest.fixture(autouse=True)
def _fresh_caches() -> object:
    yield
    is_available.cache_clear()


@pytest.mark.usefixtures("no_extension")
def test_without_the_extension_auto_is_the_reference_with_one_warning_that_names_the_remedy() -> None:
    with pytest.warns(BackendWarning, match=r"wheel.*C\+\+ compiler"):
        assert get_backend("auto", CPU).name == "reference"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert get_backend("auto", CPU).name == "reference"


@pytest.mark.usefixtures("no_extension")
def test_without_the_extension_asking_for_it_is_an_error_that_names_the_remedy() -> None:
    with pytest.raises(BackendError, match=r"'cpu' is not available.*C\+\+ compiler"):
        get_backend("cpu", CPU)


def test_elsewhere_than_on_the_cpu_auto_is_the_reference() -> None:
    assert get_backend("auto", torch.device("meta")).name == "reference"


def test_a_gpu_has_triton_and_without_it_the_reference_with_one_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu, load = torch.device("cuda", 1), registry._load
    monkeypatch.setattr(
        registry, "_load", lambda name: ReferenceBackend("gpu") if name == "triton" else load(name)
    )
    assert get_backend("auto", gpu).name == "gpu"

    def load_without(name: str) -> registry.Backend:
        if name == "triton":
            raise ImportError("not installed")
        return load(name)

    monkeypatch.setattr(registry, "_load", load_without)
    is_available.cache_clear()
    registry._warn_that_it_is_slow.cache_clear()
    with pytest.warns(BackendWarning, match=r"Triton is not installed.*halfgp\[gpu\]"):
        assert get_backend("auto", gpu).name == "reference"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert get_backend("auto", gpu).name == "reference"
    with pytest.raises(BackendError, match=r"'triton' is not available.*pip install"):
        get_backend("triton", gpu)


def test_the_cpu_is_served_without_a_look_at_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    load, asked = registry._load, []
    monkeypatch.setattr(registry, "_load", lambda name: asked.append(name) or load(name))
    get_backend("auto", CPU)
    assert "triton" not in asked
