"""The elevation model that ships with matplotlib."""

from __future__ import annotations

import importlib
import math

import numpy as np

from halfgp.datasets.dataset import Dataset
from halfgp.errors import InputError


def load_dem() -> Dataset:
    """The elevation model of the Jacksboro fault, Tennessee, that ships with matplotlib: 344 × 403 heights.

    Features are kilometres east and north of the south-western corner, to the centres of the cells, on a
    sphere at the middle latitude (good to 0.2 % over this extent). Rows run from the north-west, as in a
    picture.
    """
    try:
        cbook = importlib.import_module("matplotlib.cbook")
    except ImportError as error:
        raise InputError("The elevation model ships with matplotlib: `pip install halfgp[plot]`.") from error
    with np.load(
        cbook.get_sample_data("jacksboro_fault_dem.npz", asfileobj=False), allow_pickle=False
    ) as file:
        elevation = file["elevation"].astype(np.float64)
        dx, dy = float(file["dx"]), float(file["dy"])  # degrees
        middle = 0.5 * (float(file["ymin"]) + float(file["ymax"]))
    rows, columns = elevation.shape
    degree = math.radians(1) * 6371.0088  # km along a meridian, with the mean radius of the Earth
    east = (np.arange(columns) + 0.5) * dx * degree * math.cos(math.radians(middle))
    north = (rows - 0.5 - np.arange(rows)) * dy * degree
    grid = np.meshgrid(east, north)
    return Dataset(
        name="jacksboro_dem",
        X=np.stack([axis.ravel() for axis in grid], axis=1),
        y=elevation.ravel(),
        feature_names=("east (km)", "north (km)"),
        target_name="elevation (m)",
        test_mask=None,
        source="matplotlib sample data, jacksboro_fault_dem.npz",
        shape=(rows, columns),
    )
