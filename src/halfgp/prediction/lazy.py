"""Objects that build costly parts when those are first needed, and leave them out of a pickle."""

from __future__ import annotations

from functools import cached_property
from typing import Any


class Lazy:
    """Without its cached properties when pickled: operators hold native memory, a factor n² numbers."""

    def __getstate__(self) -> dict[str, Any]:
        lazy = {name for name, value in vars(type(self)).items() if isinstance(value, cached_property)}
        return {name: value for name, value in vars(self).items() if name not in lazy}
