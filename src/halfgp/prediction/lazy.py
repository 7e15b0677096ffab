"""Objects that build costly parts when those are first needed, and leave them out of a pickle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

Owner = TypeVar("Owner")
Part = TypeVar("Part")


class lazy(Generic[Owner, Part]):
    """A property that is computed once, and then an attribute.

    As `functools.cached_property`, but for the lock that it holds up to Python 3.11, one for all objects:
    those that hold shares of the rows build their parts together, and would wait for each other.
    """

    def __init__(self, build: Callable[[Owner], Part]) -> None:
        self._build, self.__doc__ = build, build.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> lazy[Owner, Part]: ...
    @overload
    def __get__(self, instance: Owner, owner: type) -> Part: ...
    def __get__(self, instance: Owner | None, owner: type) -> lazy[Owner, Part] | Part:
        if instance is None:
            return self
        found = vars(instance)[self._name] = self._build(instance)
        return found


class Lazy:
    """Without its lazy parts when pickled: operators hold native memory, a factor n² numbers."""

    def __getstate__(self) -> dict[str, Any]:
        parts = {name for name, value in vars(type(self)).items() if isinstance(value, lazy)}
        return {name: value for name, value in vars(self).items() if name not in parts}
