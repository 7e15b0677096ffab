"""A device that no machine lacks: tensors that say they are elsewhere, and a count of what leaves them.

They report the device "meta" and hold their numbers on the CPU. An operation on them and on an ordinary
tensor of more than one number fails, as it does between a GPU and the CPU, and copies either way are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = torch.device("meta")


class Remote(Tensor):
    """A tensor on the stand-in."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> Remote:
        found = torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=DEVICE,
        )
        found.held = held
        return found

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"Remote({self.held!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} was called outside of `RemoteDevice`.")


class _Literals(TorchFunctionMode):
    """Numbers of Python that become tensors of `DEVICE`, and the way back: no dispatch sees these."""

    def __init__(self, count: Callable[[str, int], None]) -> None:
        super().__init__()
        self._count = count

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        literal = func in (torch.tensor, torch.as_tensor) and not isinstance(args[0], Tensor)
        if literal and torch.device(kwargs.get("device") or "cpu") == DEVICE:
            return Remote(func(*args, **{**kwargs, "device": "cpu"}))
        if func is Tensor.new_tensor and isinstance(args[0], Remote):
            return Remote(args[0].held.new_tensor(*args[1:], **kwargs))
        if func is Tensor.tolist and isinstance(args[0], Remote):
            self._count("to host", args[0].numel())
            return args[0].held.tolist()
        return func(*args, **kwargs)


class RemoteDevice(TorchDispatchMode):
    """While it is entered, tensors made on `DEVICE` are `Remote`.

    Attributes:
        moved: how many copies went "to host" and "to device", and how many numbers were "read".
        largest: the most numbers that one copy moved to the host, or to the device.
    """

    def __init__(self) -> None:
        super().__init__()
        self.moved: Counter[str] = Counter()
        self.largest = {"to host": 0, "to device": 0}
        self._literals = _Literals(self._add)

    def __enter__(self) -> RemoteDevice:
        self._literals.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *failure: Any) -> None:
        super().__exit__(*failure)
        self._literals.__exit__(*failure)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        given, _ = tree_flatten((args, kwargs))
        tensors = [value for value in given if isinstance(value, Tensor)]
        remote = any(isinstance(tensor, Remote) for tensor in tensors)
        name = func.overloadpacket.__name__
        if name == "_local_scalar_dense" and remote:
            self.moved["read"] += 1
            return func(args[0].held)
        target = kwargs.get("device")
        wanted = remote if target is None else torch.device(target) == DEVICE
        if name in ("_to_copy", "copy_") and tensors:
            self._count(name, tensors, wanted)
        elif remote:
            self._refuse_mixtures(func, tensors)
        if target is not None:
            kwargs["device"] = torch.device("cpu")
        out = func(*tree_map(_held, args), **tree_map(_held, kwargs))
        if name.endswith("_") and not name.endswith("__") and args and isinstance(args[0], Tensor):
            return args[0]
        return (
            tree_map(lambda value: Remote(value) if isinstance(value, Tensor) else value, out)
            if wanted
            else out
        )

    def _count(self, name: str, tensors: list[Tensor], wanted: bool) -> None:
        source = tensors[-1] if name == "copy_" else tensors[0]
        onto = isinstance(tensors[0], Remote) if name == "copy_" else wanted
        if isinstance(source, Remote) != onto:
            self._add("to device" if onto else "to host", source.numel())

    def _add(self, way: str, numbers: int) -> None:
        self.moved[way] += 1
        self.largest[way] = max(self.largest[way], numbers)

    @staticmethod
    def _refuse_mixtures(func: Any, tensors: list[Tensor]) -> None:
        foreign = [tensor for tensor in tensors if not isinstance(tensor, Remote) and tensor.ndim]
        if foreign and "index" not in str(func):  # indices of a GPU's tensor may be on the CPU
            raise RuntimeError(f"{func}: tensors of two devices, one of shape {tuple(foreign[0].shape)}.")


def _held(value: Any) -> Any:
    return value.held if isinstance(value, Remote) else value


def on_device(tensor: Tensor) -> Tensor:
    """A copy on the stand-in."""
    return Remote(tensor.clone())


class Launched:
    """A kernel of Triton whose launches see what the stand-in holds."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        def launch(*args: Any, **kwargs: Any) -> None:
            with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
                self._kernel[grid](*tree_map(_held, args), **kwargs)

        return launch
