"""Files and frames of one's own: what is read, and what is said when it cannot be."""

from __future__ import annotations

import gzip
import tempfile
import zipfile

import numpy as np
import pandas as pd
import polars as pl
import pytest

from tacit.data import SplitConfig, describe, load, split
from tacit.errors import ConfigError, DataError
from tacit.random import Key

GOOD = "user,item,rating,timestamp\n1,10,4,978300019\n2,11,3.5,978300020\n"


def written(tmp_path, text, name="log.csv"):
    path = tmp_path / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


def rows(data):
    log = data.interactions
    users = [log.user_ids[u] for u in log.users]
    items = [log.item_ids[i] for i in log.items]
    values = None if log.values is None else log.values.tolist()
    return users, items, values, None if log.times is None else log.times.tolist()


EXPECTED = ([1, 2], [10, 11], [4.0, 3.5], [978300019, 978300020])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("log.csv", GOOD),
        ("log.csv.gz", GOOD),
        ("log.tsv", GOOD.replace(",", "\t")),
        ("semicolon.csv", GOOD.replace(",", ";")),
        ("crlf.csv", GOOD.replace("\n", "\r\n")),
        ("no_last_newline.csv", GOOD.rstrip()),
        ("blank_lines.csv", GOOD.replace("\n", "\n\n")),
        ("spaces.csv", GOOD.replace("user,item", " user , item ")),
        ("names.csv", GOOD.replace("user,item,rating,timestamp", "userId,movieId,Rating,ts")),
        ("quoted.csv", '"userId","movieId","rating","timestamp"\n"1","10",4,978300019\n"2","11",3.5,978300020\n'),
        ("atomic.inter", GOOD.replace(",", "\t").replace("user\titem\trating\ttimestamp",
         "user_id:token\titem_id:token\trating:float\ttimestamp:float")),
        ("other_order.csv", "timestamp,rating,item,user\n978300019,4,10,1\n978300020,3.5,11,2\n"),
        ("more_columns.csv", "user,comment,item,rating,timestamp\n1,a,10,4,978300019\n2,b,11,3.5,978300020\n"),
        ("no_header.csv", GOOD.split("\n", 1)[1]),
        ("no_header.dat", GOOD.split("\n", 1)[1].replace(",", "::")),
        ("header.dat", GOOD.replace(",", "::")),
        ("ms.csv", GOOD.replace("978300019", "978300019123").replace("978300020", "978300020999")),
        ("us.csv", GOOD.replace("978300019", "978300019000001").replace("978300020", "978300020000000")),
        ("ns.csv", GOOD.replace("978300019", "978300019000000001").replace("978300020", "978300020000000000")),
        ("fraction.csv", GOOD.replace("978300019", "978300019.7").replace("978300020", "978300020.2")),
        ("iso.csv", GOOD.replace("978300019", "2000-12-31T22:00:19Z").replace("978300020", "2000-12-31T22:00:20Z")),
        ("zone.csv", GOOD.replace("978300019", "2000-12-31T23:00:19+01:00")
         .replace("978300020", "2000-12-31T22:00:20+00:00")),
        ("plain.csv", GOOD.replace("978300019", "2000-12-31 22:00:19").replace("978300020", "2000-12-31 22:00:20")),
    ],
)  # fmt: skip
def test_the_same_log_in_many_forms(tmp_path, name, text):
    assert rows(load(written(tmp_path, text, name))) == EXPECTED


def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path):
    for has_header in (True, False):
        text = GOOD if has_header else GOOD.partition("\n")[2]
        assert rows(load(written(tmp_path, "\ufeff" + text))) == EXPECTED
        assert rows(load(written(tmp_path, "\ufeff" + text, "log.csv.gz"))) == EXPECTED


def test_parquet_in_hive_folders_is_one_log_and_only_its_columns_are_read(tmp_path):
    whole = pl.read_csv(GOOD.encode())
    for day, user in (("2000-12-30", 1), ("2000-12-31", 2)):
        folder = tmp_path / "log" / f"day={day}" / f"user={user}"
        folder.mkdir(parents=True)
        part = whole.filter(pl.col("user") == user).drop("user").with_columns(pl.lit("long text").alias("comment"))
        part.write_parquet(folder / "part-0.parquet", row_group_size=1)
    (tmp_path / "log" / "_SUCCESS").touch()
    found = load(tmp_path / "log")
    assert rows(found) == EXPECTED
    assert set(found.columns) == {"user", "item", "rating", "timestamp"}


def test_parquet_parts_beside_a_table_of_items(tmp_path):
    whole = pl.read_csv(GOOD.encode())
    (tmp_path / "interactions").mkdir()
    for part in range(2):
        whole[part : part + 1].write_parquet(tmp_path / "interactions" / f"part-{part}.parquet")
    pl.DataFrame({"item": [10, 11], "title": ["ten", "eleven"]}).write_csv(tmp_path / "items.tsv", separator="\t")
    found = load(tmp_path)
    assert rows(found) == EXPECTED
    assert found.catalog.titles == ["ten", "eleven"]


def test_a_damaged_part_is_refused_by_name_of_the_log(tmp_path):
    pl.read_csv(GOOD.encode()).write_parquet(tmp_path / "part-0.parquet")
    (tmp_path / "part-1.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=tmp_path.name):
        load(tmp_path)


def test_what_tools_keep_beside_parquet_parts_is_not_read(tmp_path):
    whole = pl.read_csv(GOOD.encode())
    hidden = ("_temporary/0/part-0", ".part-0", ".ipynb_checkpoints/part-0-checkpoint", "_delta_log/c", ".test")
    for name in ("part-0", *hidden):
        path = tmp_path / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        whole.with_columns(user=pl.lit(hidden.index(name) + 5) if name in hidden else "user").write_parquet(path)
    assert rows(load(tmp_path)) == EXPECTED


def test_folders_of_parquet_parts_are_a_ready_split(tmp_path):
    for user, name in enumerate(("train/part-0", "train/part-1", "test/_temporary/part-0", "test/part-0")):
        path = tmp_path / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pl.DataFrame({"user": [user], "item": [7]}).write_parquet(path)
    read = load(tmp_path)
    users = read.interactions.user_ids.labels[read.interactions.users]
    assert dict(zip(users.tolist(), read.given.tolist(), strict=True)) == {0: 0, 1: 0, 3: 2}


@pytest.mark.parametrize(
    "names",
    [
        ("train/a", "other/a"),
        ("data/train/a", "data/test/a"),
        ("train-00000-of-00001", "test-00000-of-00001"),
        ("interactions/train/a", "interactions/test/a"),
        ("log", "Validation/a"),
    ],
)
def test_parts_of_a_split_are_not_read_as_one_log(tmp_path, names):
    for name in names:
        path = tmp_path / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pl.read_csv(GOOD.encode()).write_parquet(path)
    with pytest.raises(DataError, match="parts of a split"):
        load(tmp_path)


def test_parquet(tmp_path):
    pl.read_csv(GOOD.encode()).write_parquet(tmp_path / "log.parquet")
    assert rows(load(tmp_path / "log.parquet")) == EXPECTED


def test_days_without_an_hour(tmp_path):
    data = load(written(tmp_path, "user,item,date\n1,2,2001-01-02\n1,3,2001-01-03\n"))
    assert data.interactions.times.tolist() == [978393600, 978480000]


def test_frames():
    polars = pl.read_csv(GOOD.encode())
    assert rows(load(polars)) == rows(load(polars.lazy())) == EXPECTED
    pandas = pd.DataFrame({name: polars[name].to_list() for name in polars.columns})
    assert rows(load(pandas)) == EXPECTED
    dated = pandas.assign(timestamp=pd.to_datetime(pandas["timestamp"], unit="s", utc=True), user=["b", "a"])
    assert rows(load(dated))[0] == ["b", "a"]
    assert rows(load(dated))[3] == EXPECTED[3]


def test_mapped_columns_by_name_and_by_number(tmp_path):
    named = written(tmp_path, "who,what,how\n1,10,4\n2,11,5\n")
    data = load(named, columns={"user": "who", "item": "what", "rating": "how"})
    assert rows(data)[:3] == ([1, 2], [10, 11], [4.0, 5.0])
    assert data.columns == {"user": "who", "item": "what", "rating": "how"}
    numbered = written(tmp_path, "x,10,a,1\ny,11,b,2\n", "plain.csv")
    assert rows(load(numbered, columns={"user": 4, "item": 2}))[:2] == ([1, 2], [10, 11])


def test_ids_with_leading_zeros_and_late_letters_stay_text(tmp_path):
    many = "".join(f"{i},{i}\n" for i in range(1, 500))
    data = load(written(tmp_path, f"user,item\n{many}A77,0123\n"))
    assert data.interactions.user_ids[len(data.interactions.user_ids) - 1] == "A77"
    assert "0123" in data.catalog.item_ids.labels.tolist()


def test_facts_about_items_do_not_depend_on_the_order_of_rows(tmp_path):
    header = "user,item,lat,lon,category,title\n"
    lines = ["1,7,45.0,9.0,Bar|Cafe,Lindo\n", "2,7,45.2,9.2,Bar,Lindo\n", "1,8,,,Museum,\n"]
    for order in (lines, lines[::-1]):
        catalog = load(written(tmp_path, header + "".join(order))).catalog
        assert catalog.title(0) == "Lindo"
        assert catalog.title(1) == "8"
        assert catalog.coordinates[0].tolist() == pytest.approx([45.1, 9.1])
        assert np.isnan(catalog.coordinates[1]).all()
        assert catalog.categories.of(0) == ["Bar", "Cafe"]


def test_latin_text_is_read(tmp_path):
    path = tmp_path / "log.csv"
    path.write_bytes("user,item,title\n1,2,Café\n".encode("iso-8859-1"))
    assert load(path).catalog.title(0) == "Café"


def test_a_folder_with_a_ready_split(tmp_path):
    written(tmp_path, "user,item\n1,1\n1,2\n2,1\n", "train.csv")
    written(tmp_path, "user,item\n1,3\n", "valid.csv")
    written(tmp_path, "user,item\n1,4\n2,3\n", "test.csv")
    parted = split(load(tmp_path), SplitConfig(kind="given", validation=True), Key(0))
    assert parted.counts["train"] == 3
    assert [len(parted.test), parted.test.open()[0].items.tolist()] == [2, [3, 2]]


def test_a_folder_with_items_and_a_graph(tmp_path):
    written(tmp_path, "user\titem\n1\t5\n1\t6\n", "interactions.tsv")
    written(tmp_path, "item\ttitle\tgenres\n5\tFive\tA|B\n6\tSix\tB\n7\tUnseen\tC\n", "items.tsv")
    written(tmp_path, "head\trelation\ttail\ne5\tmade by\tx\n", "kg.tsv")
    written(tmp_path, "item\tentity\n5\te5\n", "item_entity.tsv")
    catalog = load(tmp_path, graph=True).catalog
    assert catalog.titles == ["Five", "Six"]
    assert catalog.categories.of(0) == ["A", "B"]
    assert catalog.graph.item_entity.tolist() == [0, -1]
    assert catalog.graph.entities.labels.tolist() == ["e5", "x"]
    assert load(tmp_path).catalog.graph is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("log.csv", "empty")),
        ("\n\n", ("only blank lines",)),
        ("user,item\n", ("not a single row",)),
        ("person_x,thing\n1,2\n", ("'person_x', 'thing'", "user and item", "data.columns")),
        ("user,thing\n1,2\n", ("no column for item", "'user', 'thing'")),
        ("user,item,rating\n1,2,3\n1,3,abc\n", ("line 3", "rating 'abc'")),
        ("user,item,rating\n1,2,3\n1,3,nan\n", ("line 3", "nan")),
        ("user,item,rating\n1,2,3\n\n1,3,-\n", ("line 4", "rating '-'")),
        ("user,item,rating\n1,2,3\n1,,4\n", ("line 3", "item is missing")),
        ("user,item,rating\n1,2,3\n1,3,4,5\n", ("line 3", "3 columns expected, 4 seen")),
        ("user,item,rating\n1,2,3\n1\n", ("line 3", "3 columns expected, 1 seen")),
        ("user,item,timestamp\n1,2,100\n1,3,-5\n", ("line 3", "negative timestamp -5")),
        (
            "user,item,timestamp\n1,2,978300019\n1,3,978300019000\n",
            ("line 2", "978300019 (seconds)", "line 3", "978300019000 (milliseconds)"),
        ),
        ("user,item,timestamp\n1,2,2001-01-01\n1,3,yesterday\n", ("line 3", "yesterday")),
        ("user,item,timestamp\n1,2,sometime\n", ("line 2", "sometime")),
        ("user,item,timestamp\n1,2,12\n1,3,\n", ("line 3", "timestamp ''")),
        ("1,a,b,c,d\n2,a,b,c,d\n", ("line 1", "no header, and 5 columns")),
        ("user,item,split\n1,2,train\n1,3,holdout\n", ("line 3", "'holdout' is not a part")),
    ],
)
def test_bad_files_are_refused_with_file_line_and_value(tmp_path, text, words):
    with pytest.raises(DataError) as error:
        load(written(tmp_path, text))
    missing = [word for word in words if word not in str(error.value)]
    assert not missing, str(error.value)


def test_a_line_number_deep_in_a_packed_file(tmp_path):
    text = "user,item,rating\n" + "".join(f"{i},{i},3\n" for i in range(2, 5000)) + "9,9,three\n"
    with pytest.raises(DataError, match=r"log\.csv\.gz, line 5000: .*'three'"):
        load(written(tmp_path, text, "log.csv.gz"))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("ml-100q", "Did you mean 'ml-100k'?"),
        ("no/such/file.csv", "There is no file or folder"),
        ("mnist", "load_images"),
    ],
)
def test_sources_that_do_not_exist(source, words):
    with pytest.raises(DataError) as error:
        load(source)
    assert words in str(error.value)


def test_unknown_kinds_of_files_and_broken_ones(tmp_path):
    with pytest.raises(DataError, match=r"'\.xlsx' are not known"):
        load(written(tmp_path, "x", "log.xlsx"))
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        load(written(tmp_path, "x", "log.parquet"))
    (tmp_path / "log.csv.gz").write_bytes(b"not gzip")
    with pytest.raises(DataError, match="cannot be read"):
        load(tmp_path / "log.csv.gz")
    with pytest.raises(DataError, match=r"neither interactions.* seen: log"):
        load(tmp_path)


def test_frames_with_bad_values():
    frame = pl.DataFrame({"user": [1, 2], "item": [1, 2], "rating": [1.0, float("nan")]})
    with pytest.raises(DataError, match="row 2: the rating is not a number"):
        load(frame)
    with pytest.raises(DataError, match="not a single row"):
        load(frame.head(0))
    with pytest.raises(DataError, match="the user is missing"):
        load(pl.DataFrame({"user": [None, 2], "item": [1, 2]}))
    with pytest.raises(DataError, match="an id must be whole"):
        load(pl.DataFrame({"user": [1.5, 2.0], "item": [1, 2]}))
    with pytest.raises(DataError, match="Cannot load data from int"):
        load(5)


def test_options_that_do_not_fit_named_data_are_refused():
    with pytest.raises(ConfigError, match="your own files"):
        load("town", columns={"user": "x"})
    with pytest.raises(ConfigError, match="tags, listens"):
        load("lastfm-2k", table="tracks")


def test_describe_counts_rows_that_repeat_a_pair(tmp_path):
    told = describe(load(written(tmp_path, "user,item\n1,1\n2,1\n1,1\n1,2\n1,1\n"), duplicates="keep"))
    assert any(line.startswith("2 rows repeat") for line in told["warnings"])


def test_describe_reports_what_was_read(tmp_path):
    told = describe(load(written(tmp_path, "userId,movieId,ts\n1,1,978300019\n1,2,978300020\n2,1,978300021\n")))
    assert (told["users"], told["items"], told["interactions"], told["density"]) == (2, 2, 3, 0.75)
    assert told["per_person"] == {"min": 1, "median": 1.5, "mean": 1.5, "max": 2}
    assert told["time_span"] == ["2000-12-31", "2000-12-31"]
    assert told["columns"] == {"user": "userId", "item": "movieId", "timestamp": "ts"}
    assert any("1 of 2 users have a single row" in worry for worry in told["warnings"])


def zipped(tmp_path, **inside):
    path = tmp_path / "log.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in inside.items():
            archive.writestr(name, text)
    return path


LINES = '{"user": 1, "item": 10, "rating": 4, "timestamp": 978300019}\n'
LINES += '{"user": 2, "item": 11, "rating": 3.5, "timestamp": 978300020}\n'


@pytest.mark.parametrize("name", ["log.jsonl", "log.ndjson", "log.jsonl.gz"])
def test_json_lines_are_read(tmp_path, name):
    assert rows(load(written(tmp_path, LINES, name))) == EXPECTED


def test_categories_of_json_lines_are_lists_of_names(tmp_path):
    text = '{"user": "a", "item": "x", "category": ["jazz", "live"]}\n{"user": "b", "item": "x"}\n'
    catalog = load(written(tmp_path, text, "log.jsonl")).catalog
    assert sorted(catalog.categories.of(0)) == ["jazz", "live"]


def test_the_one_table_of_an_archive_is_read_and_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    path = zipped(tmp_path, **{"export/log.csv": GOOD, "export/readme.pdf": "x", "__MACOSX/._log.csv": "x"})
    assert rows(load(path)) == EXPECTED
    assert [one.name for one in tmp_path.iterdir()] == ["log.zip"]


@pytest.mark.parametrize(
    ("inside", "words"),
    [
        ({}, "there are 0"),
        ({"a.csv": GOOD, "b.csv": GOOD}, "there are 2"),
        ({"a.csv": "user,item\n"}, "not a single row"),
    ],
)
def test_an_archive_without_one_table_is_refused(tmp_path, inside, words):
    with pytest.raises(DataError, match=words):
        load(zipped(tmp_path, **inside))


def test_broken_archives_and_lines_are_refused(tmp_path):
    whole = zipped(tmp_path, **{"log.csv": GOOD * 50}).read_bytes()
    for at, content in enumerate((b"no archive", whole[: len(whole) // 2], whole[:60] + b"!!!" + whole[63:])):
        path = tmp_path / f"{at}.zip"
        path.write_bytes(content)
        with pytest.raises(DataError):
            load(path)
    for at, text in enumerate(("{", '{"user": 1}\n', "[1, 2]\n", "")):
        with pytest.raises(DataError):
            load(written(tmp_path, text, f"{at}.jsonl"))


@pytest.mark.parametrize("separator", [";", "\t"])
def test_a_decimal_comma_is_read_where_it_is_no_separator(tmp_path, separator):
    text = "user,item,rating,timestamp\n1,10,4,978300019\n2,11,3;5,978300020\n".replace(",", separator)
    text = text.replace(f"3{separator}5", "3,5") if separator == ";" else text.replace("3;5", "3,5")
    assert rows(load(written(tmp_path, text, "log.txt"))) == EXPECTED


def test_a_wrong_number_among_decimal_commas_is_named(tmp_path):
    with pytest.raises(DataError, match="line 3"):
        load(written(tmp_path, "user;item;rating\n1;10;4,5\n2;11;vier\n", "log.csv"))
