"""Tables of numbers in files: a target and its features read from one, predictions written to another.

The suffix decides the format: .csv and .tsv (also .gz), .parquet (with pyarrow; also a folder of them), .npy
and .npz. Pickles are never read.
"""

from halfgp.tables.columns import Floats
from halfgp.tables.parquet import count_rows
from halfgp.tables.table import Table, check_format, is_dataset, read_table, write_table

__all__ = ["Floats", "Table", "check_format", "count_rows", "is_dataset", "read_table", "write_table"]
