"""Official formats, on small files written by hand in that format and on the real bytes where they are at hand."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tacit.data import load, load_images
from tacit.data.archive import Member, find_member
from tacit.data.formats import checkins, images, lastfm, movielens, reviews
from tacit.errors import DataError


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A TACIT_DATA of our own, and an empty cache."""
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("TACIT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("TACIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "data"


def put(folder, name, content):
    folder.mkdir(parents=True, exist_ok=True)
    data = content if isinstance(content, bytes) else content.encode("iso-8859-1")
    (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)


def test_movielens_100k_from_a_zip(home):
    flags = "|".join("1" if i in (1, 16) else "0" for i in range(19))
    (home / "ml-100k").mkdir(parents=True)
    with zipfile.ZipFile(home / "ml-100k" / "ml-100k.zip", "w") as archive:
        archive.writestr("ml-100k/u.data", "196\t242\t3\t881250949\n186\t242\t4\t891717742\n")
        archive.writestr("ml-100k/u.item", f"242|Amélie (1995)|01-Jan-1995||http://x|{flags}\n".encode("iso-8859-1"))
    data = load("ml-100k")
    assert data.interactions.user_ids.labels.tolist() == [186, 196]
    assert data.interactions.values.tolist() == [3.0, 4.0]
    assert data.catalog.titles == ["Amélie (1995)"]
    assert data.catalog.categories.of(0) == ["Action", "Thriller"]


@pytest.mark.parametrize("packed", ["", ".gz"])
def test_movielens_1m(home, packed):
    put(home / "ml-1m", f"ratings.dat{packed}", "1::1193::5::978300760\n2::661::3::978302109\n")
    put(home / "ml-1m", "movies.dat", "661::James: the Peach (1996)::Animation|Musical\n1193::Misérables::Drama\n")
    data = load("ml-1m")
    assert data.catalog.titles == ["James: the Peach (1996)", "Misérables"]
    assert data.catalog.categories.of(0) == ["Animation", "Musical"]
    assert data.interactions.times.tolist() == [978300760, 978302109]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_lastfm_with_either_line_end(home, end):
    tags = ["userID\tartistID\ttagID\tday\tmonth\tyear", "2\t52\t13\t1\t4\t2009", "2\t52\t15\t1\t6\t1956"]
    put(home / "lastfm-2k", "user_taggedartists.dat", end.join(tags) + end)
    put(home / "lastfm-2k", "user_artists.dat", end.join(["userID\tartistID\tweight", "2\t52\t11690"]) + end)
    artists = ["id\tname\turl\tpictureURL", '52\tMotörhead "Live"\thttp://x\thttp://y']
    (home / "lastfm-2k" / "artists.dat").write_text(end.join(artists) + end, encoding="utf-8", newline="")
    data = load("lastfm-2k", duplicates="keep")
    assert data.interactions.times.tolist() == [1238544000, -428716800]  # the official file has such dates
    assert data.catalog.titles == ['Motörhead "Live"']
    assert load("lastfm-2k", table="listens").interactions.values.tolist() == [11690.0]


TSMC = "470\t49bb\t4bf5\tCaf\xe9\t40.7198\t-74.0026\t-240\tTue Apr 03 18:00:09 +0000 2012\n"


def test_foursquare_nyc(home):
    put(home / "foursquare-nyc", "dataset_TSMC2014_NYC.txt", TSMC + TSMC.replace("18:00", "19:00"))
    data = load("foursquare-nyc", duplicates="keep")
    assert data.interactions.times.tolist() == [1333476009, 1333479609]
    assert data.catalog.categories.of(0) == ["Café"]
    assert data.catalog.coordinates[0].tolist() == [40.7198, -74.0026]
    assert data.interactions.item_ids[0] == "49bb"


def test_foursquare_by_country_is_cut_from_one_archive(home):
    pois = "v1\t41.9\t12.5\tBar\tIT\nv2\t-23.5\t-46.6\tPark\tBR\nv3\t45.4\t9.2\tMuseum\tIT\n"
    log = "".join(
        f"{user}\t{venue}\tTue Apr 03 18:0{i}:06 +0000 2012\t120\n"
        for i, (user, venue) in enumerate([(1, "v1"), (1, "v2"), (2, "v3"), (2, "v9")])
    )
    (home / "tist2015").mkdir(parents=True)
    with zipfile.ZipFile(home / "tist2015" / "dataset_TIST2015.zip", "w") as archive:
        archive.writestr("dataset_TIST2015_POIs.txt", pois)
        archive.writestr("dataset_TIST2015_Checkins.txt", log)
    italy, brazil = load("foursquare-italy"), load("foursquare-brazil")
    assert (italy.n_users, italy.n_items, len(italy)) == (2, 2, 2)
    assert (brazil.n_users, brazil.n_items) == (1, 1)
    assert italy.catalog.categories.of(1) == ["Museum"]
    with pytest.raises(DataError, match="no venue lies in the country 'CA'"):
        load("foursquare-canada")


def test_gowalla_keeps_new_york(home):
    lines = ["0\t2010-10-19T23:55:27Z\t30.23\t-97.79\t22847", "0\t2010-10-18T22:17:43Z\t40.77\t-73.98\t420315"]
    put(home / "gowalla", "loc-gowalla_totalCheckins.txt.gz", "\n".join(lines) + "\n")
    data = load("gowalla-nyc")
    assert (len(data), data.interactions.item_ids[0], data.interactions.times.tolist()) == (1, 420315, [1287440263])


def test_amazon(home):
    put(
        home / "amazon-digital-music",
        "ratings_Digital_Music.csv",
        "A2EF,0005,5.0,1250467200\nA1SE,B000,4.0,1256342400\n",
    )
    data = load("amazon-digital-music")
    assert data.catalog.item_ids.labels.tolist() == ["0005", "B000"]
    assert data.interactions.values.tolist() == [5.0, 4.0]


REVIEW = (
    "{'comment': \"it's \\nfine\", 'nhelpful': 0, 'unixtime': 1160265600, 'work': '3067', 'flags': [], 'user': 'van', "
)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("reviews.txt", f"reviews = {{}}\nreviews[('van', '3067')] = {REVIEW}'stars': 4.5}}\n"
         f"reviews[('a', 'b')] = {REVIEW}'t': 1}}\n"),
        ("reviews.json", f"{REVIEW}'stars': 4.5, 'time': 'Oct 8, 2006'}}\n{REVIEW}'time': 'no stars'}}\n"),
    ],
)  # fmt: skip
def test_librarything_reviews(home, name, text):
    (home / "librarything").mkdir(parents=True)
    with tarfile.open(home / "librarything" / "lthing_data.tar.gz", "w:gz") as archive:
        info = tarfile.TarInfo(f"lthing_data/{name}")
        info.size = len(text)
        archive.addfile(info, io.BytesIO(text.encode()))
    tables = reviews.librarything(home / "librarything")
    assert tables.log.rows() == [("van", "3067", 4.5, 1160265600)]


def test_librarything_ratings_times_two(tmp_path):
    put(tmp_path, "UI2.txt", "1 77 9 high fantasy\n1 77 9 dragons\n2 78 10 maps\n")
    assert reviews.librarything(tmp_path).log.rows() == [("1", "77", 4.5), ("2", "78", 5.0)]


def test_yahoo_movies_says_where_to_ask_and_where_to_put(home):
    with pytest.raises(DataError) as error:
        load("yahoo-movies")
    assert "webscope" in str(error.value)
    assert "yahoo-movies" in str(error.value)
    for part, line in (("train", "1\t1800\t13\t5\n2\t1800\t1\t1\n"), ("test", "1\t1900\t6\t3\n")):
        put(home / "yahoo-movies", f"ydata-ymovies-user-movie-ratings-{part}-v1_0.txt", line)
    data = load("yahoo-movies")
    assert data.interactions.values.tolist() == [5.0, 1.0, 3.0]
    assert data.given.tolist() == [0, 0, 2]


def test_linked_datasets(home):
    put(home / "facebook-books", "trainingset.tsv", "1\t10\t1\n1\t11\t1\n")
    put(home / "facebook-books", "testset.tsv", "1\t12\t1\n")
    assert load("facebook-books").given.tolist() == [0, 0, 2]


def test_mnist_idx_files(home):
    for part, n in (("train", 3), ("t10k", 2)):
        pixels = np.arange(n * 4, dtype=np.uint8)
        put(home / "mnist", f"{part}-images-idx3-ubyte.gz", struct.pack(">IIII", 0x803, n, 2, 2) + pixels.tobytes())
        put(home / "mnist", f"{part}-labels-idx1-ubyte.gz", struct.pack(">II", 0x801, n) + bytes(range(n)))
    digits = load_images("mnist")
    assert digits.train_images.shape == (3, 2, 2)
    assert digits.train_images[1].tolist() == [[4, 5], [6, 7]]
    assert digits.test_labels.tolist() == [0, 1]


@pytest.mark.parametrize("raw", [b"", b"PK\x03\x04", struct.pack(">II", 0x801, 5) + b"12", b"\x00\x00\x08\x03\x00"])
def test_files_that_are_not_idx(tmp_path, raw):
    put(tmp_path, "x", raw)
    with pytest.raises(DataError):
        images.idx(Member(tmp_path / "x"))


def test_celeba_lists(home):
    put(home / "celeba-attributes", "list_attr_celeba.txt", "2\nSmiling Young\n000001.jpg -1  1\n000002.jpg  1 -1\n")
    put(home / "celeba-attributes", "identity_CelebA.txt", "000002.jpg 7\n000001.jpg 2880\n")
    faces = load_images("celeba-attributes")
    assert faces.identities.tolist() == [2880, 7]
    assert faces.attributes.tolist() == [[False, True], [True, False]]
    assert faces.names == ["Smiling", "Young"]


@pytest.mark.parametrize(
    ("name", "file", "text", "words"),
    [
        ("ml-100k", "u.data", "1\t2\t3\t4\n1\tx\t3\t4\n", ("u.data, line 2", "item 'x'")),
        ("ml-100k", "u.data", "1\t2\t3\t4\n1\t2\n", ("line 2", "4 columns expected, 2 seen")),
        ("ml-100k", "u.data", "", ("u.data", "empty")),
        ("ml-1m", "ratings.dat", "1::2::3::4\n1::2::bad::4\n", ("line 2", "rating 'bad'")),
        ("foursquare-nyc", "dataset_TSMC2014_NYC.txt", TSMC.replace("Tue Apr", "Foo"), ("cannot read the time 'Foo",)),
    ],
)
def test_damaged_official_files_name_the_line(home, name, file, text, words):
    put(home / name, file, text)
    with pytest.raises(DataError) as error:
        load(name)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_a_broken_archive_is_named(home):
    put(home / "ml-1m", "ml-1m.zip", b"not a zip")
    with pytest.raises(DataError, match=r"ml-1m\.zip: not a readable archive"):
        load("ml-1m")


def test_blocks_end_at_lines(tmp_path):
    text = b"".join(b"%d\n" % i for i in range(1000))
    put(tmp_path, "x", text)
    blocks = list(Member(tmp_path / "x").blocks(100))
    assert b"".join(block for _, block in blocks) == text
    assert all(block.endswith(b"\n") for _, block in blocks)
    assert [before for before, _ in blocks] == [int(block.split(b"\n")[0]) for _, block in blocks]


@pytest.mark.data
def test_real_bytes_of_movielens(real_data):
    folder = real_data("ml-100k") / "raw"
    tables = movielens.ml_100k(folder)
    assert (tables.log.height, tables.items.height) == (100_000, 1682)
    assert tables.items.row(0) == (1, "Toy Story (1995)", ["Animation", "Children's", "Comedy"])
    people = movielens.users_100k(find_member(folder, "u.user"))
    assert people.row(0) == (1, 24, "M", "technician", "85711")
    raw = real_data("ml-1m") / "raw"
    movies = movielens.movies_1m(Member(raw / "movies.dat.gz"))
    assert movies.height == 3883
    assert movielens.users_1m(Member(raw / "users.dat.gz")).height == 6040


@pytest.mark.data
def test_real_ratings_of_ml_1m_in_official_form(real_data, tmp_path, monkeypatch):
    sample = (real_data("ml-1m") / "raw" / "ratings.sample.dat.gz").read_bytes()
    whole = load("ml-1m").interactions
    put(tmp_path / "ml-1m", "ratings.dat", gzip.decompress(sample))
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    some = load("ml-1m").interactions
    assert len(some) == 60_400

    def rows(log):
        return set(
            zip(
                log.user_ids.labels[log.users].tolist(),
                log.item_ids.labels[log.items].tolist(),
                log.values.tolist(),
                log.times.tolist(),
                strict=True,
            )
        )

    assert rows(some) <= rows(whole)


@pytest.mark.data
def test_real_bytes_of_lastfm(real_data):
    folder = real_data("lastfm-2k") / "raw"
    tags, listens = lastfm.lastfm_2k(folder, "tags"), lastfm.lastfm_2k(folder, "listens")
    assert (tags.log.height, listens.log.height, tags.items.height) == (186_479, 92_834, 17_632)
    assert (tags.log["user"].n_unique(), listens.log["user"].n_unique()) == (1892, 1892)


@pytest.mark.data
def test_real_bytes_of_foursquare(real_data):
    sample = real_data("foursquare-nyc") / "raw" / "dataset_TSMC2014_NYC.sample.txt.gz"
    tables = checkins.tsmc2014(Member(sample))
    assert tables.log.height == 29_790
    venice = load(real_data("foursquare-italy") / "raw" / "Venice.tsv.gz", duplicates="keep")
    whole = load("foursquare-italy", duplicates="keep")
    assert dict(venice.columns) == {"user": "user_id", "item": "venue_id", "timestamp": "utc", "category": "type"}
    assert set(venice.interactions.times.tolist()) <= set(whole.interactions.times.tolist())
    assert set(venice.interactions.item_ids.labels) <= set(whole.interactions.item_ids.labels)


@pytest.mark.data
def test_real_pictures(real_data):
    real_data("mnist")
    digits = load_images("mnist")
    assert digits.train_images.shape == (60_000, 28, 28)
    assert np.bincount(digits.test_labels).tolist()[:2] == [980, 1135]
    real_data("celeba-attributes")
    faces = load_images("celeba-attributes")
    assert len(np.unique(faces.identities)) == 10_177
    assert faces.attributes[:, faces.names.index("Smiling")].mean() == pytest.approx(0.482, abs=5e-4)


def test_a_tacit_data_that_is_no_folder_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACIT_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="not a folder"):
        load("ml-100k")
