"""Real data for examples, benchmarks and tests: a map that ships with matplotlib, UCI sets, large sets.

Nothing is downloaded unless `fetch_uci` is called. The other loaders read files: from the folder given, else
from the one that HALFGP_DATA names, else from where `fetch_uci` put them.
"""

from halfgp.datasets.dataset import Dataset
from halfgp.datasets.download import UCI_URL, fetch_uci
from halfgp.datasets.elevation import load_dem
from halfgp.datasets.large import large_files, load_large
from halfgp.datasets.uci import UCI_NAMES, available, load_uci, uci_files

__all__ = [
    "UCI_NAMES",
    "UCI_URL",
    "Dataset",
    "available",
    "fetch_uci",
    "large_files",
    "load_dem",
    "load_large",
    "load_uci",
    "uci_files",
]
