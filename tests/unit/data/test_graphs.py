"""Knowledge graphs: files of triples, exploration, features of items, and what is wrong with them."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tacit.data import load
from tacit.data.exploration import explore
from tacit.data.graph_files import read_triples
from tacit.errors import ConfigError, DataError
from tacit.methods.parts.features import features_of
from tacit.types import Triples

NT = """# a comment, and a blank line

<http://x/dune> <http://dbpedia.org/ontology/author> <http://x/herbert> .
<http://x/dune> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://x/Book> .
<http://x/dune>\t<http://x/year>\t"1965"^^<http://www.w3.org/2001/XMLSchema#gYear> . # old
<http://x/emma> <http://dbpedia.org/ontology/author> <http://x/austen> .
<http://x/emma> <http://x/motto> "a \\"quick\\" \\u00e9nd"@en .
<http://x/herbert> <http://x/born> <http://x/washington> .
<http://x/herbert> <http://x/wrote> <http://x/dune> .
<http://x/austen> <http://x/born> _:somewhere .
<http://x/washington> <http://x/in> <http://x/america> .
<http://x/nobody> <http://x/in> <http://x/nowhere> .
"""
LOG = "user\titem\nann\t1\nann\t2\nbob\t1\nbob\t3\n"
LINKS = "item\tentity\n1\thttp://x/dune\n2\thttp://x/emma\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "interactions.tsv").write_text(LOG)
    (tmp_path / "item_entity.tsv").write_text(LINKS)
    (tmp_path / "kg.nt").write_text(NT)
    return tmp_path


def said(graph: Triples | None) -> set[tuple[str, str, str]]:
    assert graph is not None
    rows = zip(graph.heads, graph.relations, graph.tails, strict=True)
    return {tuple(str(x).removeprefix("http://x/") for x in (  # type: ignore[misc]
        graph.entities[h], graph.relation_names[r], graph.entities[t])) for h, r, t in rows}  # fmt: skip


AUTHOR = "http://dbpedia.org/ontology/author"
ONE_HOP = {
    ("dune", AUTHOR, "herbert"),
    ("dune", "year", "1965"),
    ("emma", AUTHOR, "austen"),
    ("emma", "motto", 'a "quick" énd'),
}


def test_n_triples_are_explored_from_the_items(folder: Path) -> None:
    one = load(folder, graph=True, hops=1).catalog.graph
    assert said(one) == ONE_HOP  # rdf:type is noise
    assert one is not None
    assert (one.item_entity >= 0).tolist() == [True, True, False]
    two = said(load(folder, graph=True, hops=2).catalog.graph)
    assert two == ONE_HOP | {
        ("dune", f"{AUTHOR}~http://x/born", "washington"),
        ("emma", f"{AUTHOR}~http://x/born", "_:somewhere"),
    }, "a path that leads back to its item is none"
    three = said(load(folder, graph=True, hops=3).catalog.graph)
    assert three - two == {("dune", f"{AUTHOR}~http://x/born~http://x/in", "america")}


def test_only_what_items_reach_is_kept_and_everything_without_hops(folder: Path) -> None:
    linked = pl.Series(["http://x/dune", None])
    assert len(read_triples(folder / "kg.nt", linked, 1)) == 2
    near = said(read_triples(folder / "kg.nt", linked, 2))
    assert ("herbert", "wrote", "dune") in near
    assert not any(head in ("emma", "nobody", "washington") for head, _, _ in near)
    assert len(read_triples(folder / "kg.nt", linked, 0)) == 10


def test_blocks_may_be_cut_anywhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = said(load(folder, graph=True, hops=3).catalog.graph)
    for size in (7, 64, 300):
        monkeypatch.setattr("tacit.data.graph_files.BLOCK", size)
        assert said(load(folder, graph=True, hops=3).catalog.graph) == whole


def test_triples_of_ones_own_in_tsv_gzipped(folder: Path, tmp_path: Path) -> None:
    rows = ["head\trelation\ttail", "http://x/dune\tby\tx", "x\tfrom\ty", "z\tfrom\ty"]
    path = tmp_path / "mine.tsv.gz"
    path.write_bytes(gzip.compress("\n".join(rows).encode()))
    found = load(folder / "interactions.tsv", graph=str(path), links=str(folder / "item_entity.tsv"), hops=2)
    assert said(found.catalog.graph) == {("dune", "by", "x"), ("dune", "by~from", "y")}


FEATURES = {
    "two columns": "item\tfeature\n1\tred\n1\tbig\n3\tred\n",
    "three columns": "item\tpredicate\tobject\n1\tcolour\tred\n3\tcolour\tred\n",
}


@pytest.mark.parametrize("columns", FEATURES.values(), ids=FEATURES)
def test_ready_features_need_no_entities(tmp_path: Path, columns: str) -> None:
    (tmp_path / "interactions.tsv").write_text(LOG)
    (tmp_path / "features.tsv").write_text(columns)
    known = features_of(load(tmp_path, graph=True).catalog, "graph", "test")
    assert np.diff(known.ptr).tolist()[1:] == [0, 1]
    assert known.names[known.ids[-1]].endswith(": red")


def test_rare_features_and_predicates_are_filtered(folder: Path) -> None:
    (folder / "item_entity.tsv").write_text(LINKS + "3\thttp://x/dune\n")
    common = load(folder, graph=True, hops=2, min_per_feature=2).catalog.graph
    assert {head for head, _, _ in said(common)} == {"dune"}, "two items are this entity"
    only = said(load(folder, graph=True, hops=2, only_predicates=("dbo:author",)).catalog.graph)
    assert {path.split("~")[0] for _, path, _ in only} == {AUTHOR}
    typed = said(load(folder, graph=True, hops=1, skip_predicates=()).catalog.graph)
    assert ("dune", "http://www.w3.org/1999/02/22-rdf-syntax-ns#type", "Book") in typed


def test_items_of_which_nothing_is_known_may_be_left_out(folder: Path) -> None:
    kept = load(folder, graph=True, hops=1, described=True)
    assert kept.catalog.item_ids.labels.tolist() == [1, 2]
    with pytest.raises(DataError, match="nothing is known"):
        load(folder, described=True)


def test_items_without_titles_are_called_by_their_entities(folder: Path) -> None:
    assert load(folder, graph=True, hops=1).catalog.titles == ["dune", "emma", "3"]
    assert load(folder).catalog.titles is None
    (folder / "items.tsv").write_text("item\ttitle\n1\tDune, a novel\n")
    assert load(folder, graph=True, hops=1).catalog.titles == ["Dune, a novel", "2", "3"]


def test_cycles_end(tmp_path: Path) -> None:
    (tmp_path / "interactions.tsv").write_text(LOG)
    (tmp_path / "item_entity.tsv").write_text("item\tentity\n1\ta\n")
    (tmp_path / "kg.tsv").write_text("head\trelation\ttail\na\tr\tb\nb\tr\tc\nc\tr\tb\nb\tr\ta\na\tr\ta\n")
    found = said(load(tmp_path, graph=True, hops=4).catalog.graph)
    assert found == {("a", "r", "b"), ("a", "r~r", "c"), ("a", "r~r~r", "b"), ("a", "r~r~r~r", "c")}


def test_what_cannot_be_read_is_named_with_its_line(folder: Path) -> None:
    (folder / "kg.nt").write_text(NT + "<http://x/dune> <http://x/broken .\n")
    with pytest.raises(DataError, match=r"kg.nt, line 13: this is not a triple: '<http://x/dune> <http://x/broken .'"):
        load(folder, graph=True, hops=1)
    (folder / "kg.nt").write_text("what is this\n")
    with pytest.raises(DataError, match=r"kg.nt, line 1: this is not a triple"):
        load(folder, graph=True, hops=1)
    (folder / "mine.tsv").write_text("a\tb\tc\na\tb\n")
    with pytest.raises(DataError, match=r"mine.tsv, line 2: this is not a triple"):
        load(folder, graph=str(folder / "mine.tsv"), hops=1)


def test_a_graph_that_leaves_nothing_is_refused(folder: Path) -> None:
    with pytest.raises(DataError, match="Predicates of the items: dbo:author"):
        load(folder, graph=True, hops=2, only_predicates=("dbo:composer",))
    with pytest.raises(DataError, match="No feature of the knowledge graph describes 5 items; the commonest"):
        load(folder, graph=True, hops=2, min_per_feature=5)
    (folder / "item_entity.tsv").write_text("item\tentity\n1\thttp://x/unknown\n")
    with pytest.raises(DataError, match="1 entities are linked"):
        load(folder, graph=True, hops=2)
    (folder / "item_entity.tsv").unlink()
    with pytest.raises(DataError, match="without the entities of items"):
        load(folder, graph=True, hops=2)


def test_options_without_effect_are_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="'hops' has no effect unless a graph is explored"):
        load(folder, hops=2)
    with pytest.raises(ConfigError, match="'min_per_feature' has no effect"):
        load(folder, graph=True, min_per_feature=3)
    with pytest.raises(ConfigError, match="'links' belongs to your own graph"):
        load(folder, graph=True, links="x")
    with pytest.raises(ConfigError, match="town has a graph of its own"):
        load("town", graph="x.nt")
    with pytest.raises(DataError, match=r"there is no file .*x.nt"):
        load(folder, graph="x.nt")


def test_the_town_is_explored_too() -> None:
    graph = load("town", users=40, places=60, visits=10, graph=True, hops=2).catalog.graph
    assert graph is not None
    further = {"category~kind", "neighbourhood~side of town", "owner~home"}
    assert set(graph.relation_names) == {"category", "neighbourhood", "price", "owner"} | further


def test_exploring_ready_paths_counts_their_steps() -> None:
    graph = load("town", users=40, places=60, visits=10, graph=True, hops=2).catalog.graph
    assert graph is not None
    assert not any("~" in name for name in explore(graph, 1).relation_names)
    linked = np.isin(graph.heads, graph.item_entity)  # places without visits have left the catalogue
    assert len(explore(graph, 2)) == linked.sum()


@pytest.mark.data
def test_facebook_books_has_the_features_of_the_paper(real_data) -> None:
    real_data("facebook-books")
    books = load("facebook-books", graph=True, hops=2, min_per_feature=11, described=True, core=5)
    known = features_of(load("facebook-books", graph=True, hops=2).catalog, "graph", "test")
    assert (len(known.ids), len(known), int((known.hops == 1).sum())) == (306_847, 7_761, 523)
    assert (books.n_users, books.n_items, len(books)) == (1_363, 782, 13_788)


@pytest.mark.data
def test_movielens_has_one_hop(real_data) -> None:
    real_data("ml-1m")
    known = features_of(load("ml-1m", graph=True, hops=2, min_per_feature=11).catalog, "graph", "test")
    assert (known.hops == 1).all()
    assert len(known) > 300
