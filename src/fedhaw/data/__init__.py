"""Where samples come from, and who holds which."""

from fedhaw.data.by_name import SPLITS, split
from fedhaw.data.dataset import Dataset, from_arrays, from_table, stratified_split
from fedhaw.data.errors import DataError, DownloadError
from fedhaw.data.features import frozen_features
from fedhaw.data.partition_files import read_partition, read_proxy_split, write_partition
from fedhaw.data.partitions import (
    by_holder,
    dirichlet,
    iid,
    label_counts,
    letter_dirichlet,
    restrict,
    shards,
)
from fedhaw.data.proxy import proxy_split
from fedhaw.data.scales import ScaledInputs, scaled, scaled_part
from fedhaw.data.selection import beginning, with_noisy_clients
from fedhaw.data.sources import load, names, search_folders

__all__ = [
    "SPLITS",
    "DataError",
    "Dataset",
    "DownloadError",
    "ScaledInputs",
    "beginning",
    "by_holder",
    "dirichlet",
    "from_arrays",
    "from_table",
    "frozen_features",
    "iid",
    "label_counts",
    "letter_dirichlet",
    "load",
    "names",
    "proxy_split",
    "read_partition",
    "read_proxy_split",
    "restrict",
    "scaled",
    "scaled_part",
    "search_folders",
    "shards",
    "split",
    "stratified_split",
    "with_noisy_clients",
    "write_partition",
]
