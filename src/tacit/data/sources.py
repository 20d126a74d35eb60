"""The named datasets: where each comes from, what may be done with it, how its official files are read."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tacit.data.archive import find_member
from tacit.data.dataset import Tables
from tacit.data.download import Remote, cache_folder
from tacit.data.folder import find
from tacit.data.formats.checkins import gowalla, tist2015, tsmc2014
from tacit.data.formats.lastfm import lastfm_2k
from tacit.data.formats.movielens import ml_1m, ml_100k
from tacit.data.formats.reviews import amazon, librarything, sisinf_linked, yahoo_movies
from tacit.errors import DataError, nearest

Parser = Callable[[Path, str], Tables]


@dataclass(frozen=True)
class Source:
    """A dataset known by name. `signs` are official files, any of which shows that a folder holds it."""

    name: str
    title: str
    home: str
    licence: str
    citation: str
    signs: tuple[str, ...]
    files: tuple[Remote, ...] = ()
    parse: Parser | None = None  # None: not a log of users and items
    ask: str = ""  # where to ask for it, when it cannot be downloaded freely
    tables: tuple[str, ...] = ()  # values of data.table, the default first
    folder: str = ""  # shared by datasets that are cut from one archive
    before_1970: bool = False

    @property
    def folders(self) -> tuple[str, ...]:
        """The folder names it is looked up under."""
        return (self.name, self.folder) if self.folder else (self.name,)


@dataclass(frozen=True)
class DatasetLocation:
    """Where a dataset was found, and in which form: our tables, or the official files."""

    folder: Path
    form: Literal["tables", "official"]
    cached: bool


_GROUPLENS = "Research use with acknowledgement; no redistribution and no commercial use without permission."
_CITE = "Research use; the authors ask to be cited; no licence text is published."
_MOVIELENS = "F. M. Harper, J. A. Konstan: The MovieLens Datasets: History and Context. ACM TiiS 5(4), 2015."
_YANG = "https://sites.google.com/site/yangdingqi/home/foursquare-dataset"
_TIST = Remote(
    "https://drive.usercontent.google.com/download?id=0BwrgZ-IdrTotZ0U0ZER2ejI3VVk&export=download"
    "&resourcekey=0-rlHp_JcRyFAxN7v5OAGldw&confirm=t",
    "dataset_TIST2015.zip",
    size=775_746_915,
)
_LINKED = "https://raw.githubusercontent.com/sisinflab/LinkedDatasets/master/facebook_book/"
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"  # the publisher's own server no longer serves the files


def _country(name: str, title: str, code: str) -> Source:
    return Source(
        name,
        f"Foursquare check-ins in {title}, 2012-2013 (TIST2015)",
        _YANG,
        _CITE,
        "D. Yang, D. Zhang, B. Qu: Participatory Cultural Mapping Based on Collective Behavior Data in Location-Based "
        "Social Networks. ACM TIST 7(3), 2016.",
        ("dataset_TIST2015_Checkins.txt",),
        (_TIST,),
        lambda folder, _: tist2015(folder, code),
        folder="tist2015",
    )


def _tsmc(folder: Path, _: str) -> Tables:
    member = find_member(folder, "dataset_TSMC2014_NYC.txt")
    if member is None:
        raise DataError(f"{folder}: dataset_TSMC2014_NYC.txt is missing.")
    return tsmc2014(member)


_ALL = (
    Source(
        "ml-100k",
        "MovieLens 100K: 100,000 ratings of 943 users, 1997-1998",
        "https://grouplens.org/datasets/movielens/100k/",
        _GROUPLENS,
        _MOVIELENS,
        ("u.data",),
        (
            Remote(
                "https://files.grouplens.org/datasets/movielens/ml-100k.zip",
                "ml-100k.zip",
                "md5:0e33842e24a9c977be4e0107933c0723",
                4_924_029,
            ),
        ),
        lambda folder, _: ml_100k(folder),
    ),
    Source(
        "ml-1m",
        "MovieLens 1M: 1,000,209 ratings of 6,040 users, 2000-2003",
        "https://grouplens.org/datasets/movielens/1m/",
        _GROUPLENS,
        _MOVIELENS,
        ("ratings.dat",),
        (
            Remote(
                "https://files.grouplens.org/datasets/movielens/ml-1m.zip",
                "ml-1m.zip",
                "md5:c4d9eecfca2ab87c1945afe126590906",
            ),
        ),
        lambda folder, _: ml_1m(folder),
    ),
    Source(
        "foursquare-nyc",
        "Foursquare check-ins in New York, 2012-2013 (TSMC2014)",
        _YANG,
        _CITE,
        "D. Yang, D. Zhang, V. W. Zheng, Z. Yu: Modeling User Activity Preference by Leveraging User Spatial Temporal "
        "Characteristics in LBSNs. IEEE Trans. SMC: Systems 45(1), 2015.",
        ("dataset_TSMC2014_NYC.txt",),
        (
            Remote(
                "http://www-public.it-sudparis.eu/~zhang_da/pub/dataset_tsmc2014.zip",
                "dataset_tsmc2014.zip",
                "sha256:cbe3fdab373d24b09b5fc53509c8958c77ff72b6c1a68589ce337d4f9a80235b",
            ),
        ),
        _tsmc,
    ),
    _country("foursquare-brazil", "Brazil", "BR"),
    _country("foursquare-canada", "Canada", "CA"),
    _country("foursquare-italy", "Italy", "IT"),
    Source(
        "gowalla-nyc",
        "Gowalla check-ins in New York, 2009-2010",
        "https://snap.stanford.edu/data/loc-gowalla.html",
        _CITE,
        "E. Cho, S. A. Myers, J. Leskovec: Friendship and Mobility. KDD 2011.",
        ("loc-gowalla_totalCheckins.txt",),
        (
            Remote(
                "https://snap.stanford.edu/data/loc-gowalla_totalCheckins.txt.gz",
                "loc-gowalla_totalCheckins.txt.gz",
                "md5:8ebd5ed2dd376d8982987c49429cb9f9",
            ),
        ),
        lambda folder, _: gowalla(folder),
        folder="gowalla",
    ),
    Source(
        "gowalla-1k",
        "Gowalla check-ins of 1,000 users all over the world, 2009-2010",
        "https://github.com/rahmanidashti/LBSNDatasets",
        _CITE,
        "Y. Liu, T.-A. N. Pham, G. Cong, Q. Yuan: An Experimental Evaluation of Point-of-interest Recommendation in "
        "Location-based Social Networks. VLDB 2017.",
        (),
        ask="Take Gowalla/Gowalla_3 from its home page as interactions.tsv (user, item, timestamp).",
    ),
    Source(
        "lastfm-2k",
        "Last.fm 2K (HetRec 2011): tags and listening counts of 1,892 users",
        "https://grouplens.org/datasets/hetrec-2011/",
        "Non-commercial use only; the data belongs to Last.fm.",
        "I. Cantador, P. Brusilovsky, T. Kuflik: 2nd Workshop on Information Heterogeneity and Fusion in Recommender "
        "Systems (HetRec). RecSys 2011.",
        ("user_taggedartists.dat",),
        (
            Remote(
                "https://files.grouplens.org/datasets/hetrec2011/hetrec2011-lastfm-2k.zip",
                "hetrec2011-lastfm-2k.zip",
                "sha256:6738f48195667ff03caaab4d32ca9a3133d8cc026b7c3cdaf6ce1010e913c59c",
            ),
        ),
        lastfm_2k,
        tables=("tags", "listens"),
        before_1970=True,
    ),
    Source(
        "amazon-digital-music",
        "Amazon ratings of digital music, 1998-2014",
        "https://cseweb.ucsd.edu/~jmcauley/datasets/amazon/links.html",
        "Research use; the authors ask to be cited.",
        "J. McAuley, C. Targett, J. Shi, A. van den Hengel: Image-based Recommendations on Styles and Substitutes. "
        "SIGIR 2015.",
        ("ratings_Digital_Music.csv",),
        (
            Remote(
                "http://snap.stanford.edu/data/amazon/productGraph/categoryFiles/ratings_Digital_Music.csv",
                "ratings_Digital_Music.csv",
            ),
        ),
        lambda folder, _: amazon(folder, "ratings_Digital_Music.csv"),
    ),
    Source(
        "librarything",
        "LibraryThing: ratings and reviews of books",
        "https://cseweb.ucsd.edu/~jmcauley/datasets.html#social_data",
        "Research use; the authors ask to be cited.",
        "C. Cai, R. He, J. McAuley: SPMC: Socially-Aware Personalized Markov Chains for Sparse Sequential "
        "Recommendation. IJCAI 2017.",
        ("reviews.txt", "reviews.json", "UI2.txt"),
        (
            Remote(
                "https://mcauleylab.ucsd.edu/public_datasets/data/librarything/lthing_data.tar.gz",
                "lthing_data.tar.gz",
            ),
        ),
        lambda folder, _: librarything(folder),
    ),
    Source(
        "facebook-books",
        "Facebook Books: likes of books, linked to DBpedia (ESWC 2015 challenge)",
        "https://github.com/sisinflab/LinkedDatasets",
        "No licence text is published; research use with citation.",
        "V. W. Anelli et al.: Sparse Feature Factorization for Recommender Systems with Knowledge Graphs. RecSys 2021.",
        ("trainingset.tsv",),
        (Remote(_LINKED + "trainingset.tsv", "trainingset.tsv"), Remote(_LINKED + "testset.tsv", "testset.tsv")),
        lambda folder, _: sisinf_linked(folder),
    ),
    Source(
        "yahoo-movies",
        "Yahoo! Movies ratings (Webscope R4)",
        "https://webscope.sandbox.yahoo.com/catalog.php?datatype=r",
        "Only for those whom Yahoo! Webscope granted it; non-commercial research; no redistribution.",
        "Yahoo! Webscope dataset ydata-ymovies-user-movie-ratings-content-v1_0.",
        ("ydata-ymovies-user-movie-ratings-train-v1_0.txt", "trainingset.tsv"),
        parse=lambda folder, _: yahoo_movies(folder),
        ask="Ask Yahoo! Webscope for R4 at https://webscope.sandbox.yahoo.com.",
    ),
    Source(
        "pepper-splits",
        "The data files of PEPPER's authors, with their own split",
        "https://github.com/YacineBelal/PEPPER",
        "No licence text is published; the terms of Foursquare, Gowalla and MovieLens apply.",
        "Y. Belal, A. Bellet, S. Ben Mokhtar, V. Nitu: PEPPER: Empowering User-Centric Recommender Systems over Gossip "
        "Learning. IMWUT 6(3), 2022.",
        (),
        ask="Copy the *.rating files of its repository, one folder per table.",
        tables=("ml-100k", "foursquare-nyc", "gowalla-nyc"),
    ),
    Source(
        "mnist",
        "MNIST: 70,000 handwritten digits",
        "http://yann.lecun.com/exdb/mnist/",
        "Commonly given as CC BY-SA 3.0; the official page states none.",
        "Y. LeCun, L. Bottou, Y. Bengio, P. Haffner: Gradient-based learning applied to document recognition. "
        "Proc. IEEE 86(11), 1998.",
        ("train-images-idx3-ubyte",),
        tuple(
            Remote(f"{_MNIST}{name}.gz", f"{name}.gz", f"md5:{md5}")
            for name, md5 in (
                ("train-images-idx3-ubyte", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
                ("train-labels-idx1-ubyte", "d53e105ee54ea40749a09fcbcd1e9432"),
                ("t10k-images-idx3-ubyte", "9fb629c4189551a2d022fa330f9573f3"),
                ("t10k-labels-idx1-ubyte", "ec29112dd5afa0611ce80d1b7f02629c"),
            )
        ),
    ),
    Source(
        "celeba-attributes",
        "CelebA: 40 attributes and the identity of 202,599 pictures",
        "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
        "Non-commercial research only; no redistribution.",
        "Z. Liu, P. Luo, X. Wang, X. Tang: Deep Learning Face Attributes in the Wild. ICCV 2015.",
        ("list_attr_celeba.txt",),
        ask="Agree to the terms on its home page and take list_attr_celeba.txt and identity_CelebA.txt.",
    ),
)
SOURCES: dict[str, Source] = {source.name: source for source in _ALL}
HANDED_OVER = "given-"
"""How the source of data begins that a program handed over; its name and a fingerprint of its contents follow."""
_READY = {"mnist": "mnist.npz", "celeba-attributes": "celeba_attributes.npz"}


def find_source(name: str) -> Source:
    """Return a named dataset, or say which name is nearest."""
    if name not in SOURCES:
        raise unknown_dataset(name)
    return SOURCES[name]


def unknown_dataset(name: str) -> DataError:
    """Return the error for a name that stands for no dataset, file or folder."""
    if name.startswith(HANDED_OVER):
        hint = "Hand it over again: tacit.run(experiment, data)."
        return DataError(f"'{name}' was handed over from Python and is in no file.", hint)
    known = nearest(name, ["town", *SOURCES])
    return DataError(f"There is no dataset '{name}', and no file or folder of that name.", known)


def locate(source: Source) -> DatasetLocation | None:
    """Return where a dataset is: under TACIT_DATA, else in the cache, else None."""
    roots = [(Path(root), False)] if (root := os.environ.get("TACIT_DATA")) else []
    if root and not Path(root).is_dir():
        raise DataError(f"TACIT_DATA names '{root}', which is not a folder.", "Correct it, or unset it.")
    roots.append((cache_folder(), True))
    for base, cached in roots:
        for name in source.folders:
            folder = base / name
            if find(folder, "interactions") or (folder / _READY.get(source.name, "-")).is_file():
                return DatasetLocation(folder, "tables", cached)
            if source.name == "pepper-splits" and folder.is_dir():
                return DatasetLocation(folder, "tables", cached)
            if any(find_member(folder, sign) for sign in source.signs):
                return DatasetLocation(folder, "official", cached)
    return None
