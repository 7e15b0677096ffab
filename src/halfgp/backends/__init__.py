"""Ways to multiply with kernel matrices; each module offers its own as `BACKEND`."""

from __future__ import annotations

import functools
import importlib
import warnings

import torch

from halfgp.backends.base import Backend, KernelMatrix
from halfgp.errors import BackendError, BackendWarning, InputError
from halfgp.kernels import Kernel

__all__ = ["NAMES", "Backend", "KernelMatrix", "available", "get_backend", "is_available"]

NAMES = ("triton", "cpu", "reference")

_REMEDIES = {
    "cpu": "Install halfgp from a wheel, or from source on a machine with a C++ compiler.",
    "triton": "Install Triton, which torch for Linux brings, or `pip install 'halfgp[gpu]'`.",
}


def get_backend(backend: str | Backend, device: torch.device, kernel: Kernel | None = None) -> Backend:
    """The backend of that name, or an object that is one.

    "auto" is the fast one of the device, `cpu` or `triton`, where it can be had and has the profiles of the
    kernel, or of any in this package where no kernel is given. Otherwise it is `reference`; a warning says
    why, once.
    """
    if not isinstance(backend, str):
        if not callable(getattr(backend, "bind", None)):
            raise InputError(f"`backend` must be a name or an object with `bind`; got {backend!r}.")
        return backend
    if backend == "auto":
        return _fastest(device, kernel)
    if backend not in NAMES:
        known = ", ".join(f'"{name}"' for name in ("auto", *NAMES))
        raise InputError(f"`backend` must be one of {known}; got {backend!r}.")
    try:
        found = _load(backend)
    except ImportError as error:
        remedy = _REMEDIES[backend]
        raise BackendError(f"The backend {backend!r} is not available ({error}). {remedy}") from error
    if backend == "cpu" and device.type != "cpu":
        raise InputError(f'`backend="cpu"` needs points on the CPU; got {device}. Use "auto".')
    return found


def _fastest(device: torch.device, kernel: Kernel | None) -> Backend:
    """What "auto" takes. Torch calls a GPU of ROCm "cuda" too."""
    name = {"cpu": "cpu", "cuda": "triton"}.get(device.type)
    if name is None:
        return _load("reference")
    leaves = () if kernel is None else kernel.program().leaves
    strange = next((leaf.profile.name for leaf in leaves if not leaf.in_engine), None)
    if strange is not None:
        _warn_of_profile(strange)
    elif is_available(name):
        return _load(name)
    else:
        _warn_that_it_is_slow(name)
    return _load("reference")


@functools.cache
def is_available(name: str) -> bool:
    """Whether a backend can be loaded here; Triton's without a GPU too, where it serves nobody."""
    try:
        _load(name)
    except ImportError:
        return False
    return True


def available() -> tuple[str, ...]:
    """The names of the backends that can be used here."""
    return tuple(name for name in NAMES if is_available(name))


def _load(name: str) -> Backend:
    backend: Backend = importlib.import_module(f"halfgp.backends.{name}").BACKEND
    return backend


@functools.cache  # once for each
def _warn_that_it_is_slow(name: str) -> None:
    what = {"cpu": "The fast CPU backend was not built", "triton": "Triton is not installed"}[name]
    message = f"{what}, so the much slower reference serves. {_REMEDIES[name]}"
    warnings.warn(message, BackendWarning, stacklevel=5)  # the caller of KernelOperator


@functools.cache  # once for each
def _warn_of_profile(name: str) -> None:
    message = (
        f"The compiled engine does not know the profile {name!r}, so the much slower reference serves."
        " Write the profile in cpp/profile.inl too where that is too slow."
    )
    warnings.warn(message, BackendWarning, stacklevel=5)
