"""Pictures of square matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_matrix(
    entries: Sequence[Sequence[float | None]],
    limits: tuple[float, float],
    label: str,
    axes: Axes,
    colours: str = "viridis",
) -> None:
    """A matrix as an image with a scale beside it; what is None stays empty.

    Args:
        entries: rows, as a result has them.
        limits: of the colours.
        label: of the scale.
        axes: to draw into.
        colours: a colour map of matplotlib.
    """
    values = np.ma.masked_invalid(np.array(entries, dtype=float))
    image = axes.imshow(values, cmap=colours, vmin=limits[0], vmax=limits[1], interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.grid(False)
    scale = axes.figure.colorbar(image, ax=axes, label=label)
    scale.outline.set_visible(False)
