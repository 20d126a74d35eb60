"""Loading, filtering and splitting of datasets: from a log to cohorts."""

from tacit.data.dataset import PARTS, Dataset, Step
from tacit.data.describe import describe
from tacit.data.download import DownloadProgress, cache_folder
from tacit.data.fetch import Status, datasets, fetch
from tacit.data.filters import FilterConfig, apply_filters
from tacit.data.formats.images import Digits, Faces
from tacit.data.load import DataConfig, load, load_images
from tacit.data.sources import HANDED_OVER, SOURCES, Source
from tacit.data.split import Split, split
from tacit.data.split_config import SplitConfig
from tacit.data.town import town

__all__ = [
    "HANDED_OVER",
    "PARTS",
    "SOURCES",
    "DataConfig",
    "Dataset",
    "Digits",
    "DownloadProgress",
    "Faces",
    "FilterConfig",
    "Source",
    "Split",
    "SplitConfig",
    "Status",
    "Step",
    "apply_filters",
    "cache_folder",
    "datasets",
    "describe",
    "fetch",
    "load",
    "load_images",
    "split",
    "town",
]
