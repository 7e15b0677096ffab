"""Ways to multiply with kernel matrices; each module offers its own as `BACKEND`."""

from __future__ import annotations

import functools
import importlib
import warnings

import torch

from halfgp.backends.base import Backend, KernelMatrix
from halfgp.errors import BackendError, BackendWarning, InputError
from halfgp.kernels import Kernel

__all__ = ["NAMES", "Backend", "KernelMatrix", "available", "get_backend"]

NAMES = ("triton", "cpu", "reference")

_REMEDY = "Install halfgp from a wheel, or from source on a machine with a C++ compiler."


def get_backend(backend: str | Backend, device: torch.device, kernel: Kernel | None = None) -> Backend:
    """The backend of that name, or an object that is one.

    "auto" is `cpu` for points on the CPU where its extension was built and has the profiles of the kernel, or
    of any in this package where no kernel is given. Otherwise it is `reference`; a warning says why, once.
    """
    if not isinstance(backend, str):
        if not callable(getattr(backend, "bind", None)):
            raise InputError(f"`backend` must be a name or an object with `bind`; got {backend!r}.")
        return backend
    if backend == "auto":
        if device.type == "cpu":
            leaves = () if kernel is None else kernel.program().leaves
            strange = next((leaf.profile.name for leaf in leaves if not leaf.in_engine), None)
            if strange is not None:
                _warn_of_profile(strange)
            elif "cpu" in available():
                return _load("cpu")
            else:
                _warn_that_it_is_slow()
        return _load("reference")
    if backend not in NAMES:
        known = ", ".join(f'"{name}"' for name in ("auto", *NAMES))
        raise InputError(f"`backend` must be one of {known}; got {backend!r}.")
    try:
        found = _load(backend)
    except ImportError as error:
        raise BackendError(f"The backend {backend!r} is not available ({error}). {_REMEDY}") from error
    if backend == "cpu" and device.type != "cpu":
        raise InputError(f'`backend="cpu"` needs points on the CPU; got {device}. Use "auto".')
    return found


@functools.cache
def available() -> tuple[str, ...]:
    """The names of the backends that can be used here."""
    found = []
    for name in NAMES:
        try:
            _load(name)
        except ImportError:
            continue
        found.append(name)
    return tuple(found)


def _load(name: str) -> Backend:
    backend: Backend = importlib.import_module(f"halfgp.backends.{name}").BACKEND
    return backend


@functools.cache  # once per process
def _warn_that_it_is_slow() -> None:
    message = f"The fast CPU backend was not built, so the much slower reference serves. {_REMEDY}"
    warnings.warn(message, BackendWarning, stacklevel=4)  # the caller of KernelOperator


@functools.cache  # once for each
def _warn_of_profile(name: str) -> None:
    message = (
        f"The compiled engine does not know the profile {name!r}, so the much slower reference serves."
        " Write the profile in cpp/profile.inl too where that is too slow."
    )
    warnings.warn(message, BackendWarning, stacklevel=4)
