"""Merkle trees: known roots, and every proof of every small tree; nothing else is accepted."""

from __future__ import annotations

import hashlib
import random
from itertools import combinations

import pytest

from tacit.protocols.merkle import EMPTY, MerkleTree, has_members, is_growth, leaf_hash, node_hash

ENTRIES = [bytes([n]) * 32 for n in range(40)]
CERTIFICATE_TRANSPARENCY = [  # the test leaves that implementations of RFC 6962 share, and their roots
    *("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def plain_root(entries: list[bytes]) -> bytes:
    """The RFC's definition, word by word."""
    if len(entries) < 2:
        return leaf_hash(entries[0]) if entries else hashlib.sha256().digest()
    k = 1
    while 2 * k < len(entries):
        k *= 2
    return node_hash(plain_root(entries[:k]), plain_root(entries[k:]))


def test_roots_are_those_of_the_rfc() -> None:
    tree = MerkleTree()
    assert tree.root() == EMPTY
    for leaf, root in zip(CERTIFICATE_TRANSPARENCY, ROOTS, strict=True):
        tree.append(bytes.fromhex(leaf))
        assert tree.root().hex() == root
    big = MerkleTree(ENTRIES)
    assert [big.root(size) for size in range(41)] == [plain_root(ENTRIES[:size]) for size in range(41)]


def test_growth_is_proved_for_every_pair_of_sizes_and_for_no_other_list() -> None:
    tree, other = MerkleTree(ENTRIES), MerkleTree([b"another", *ENTRIES[1:]])
    for size in range(1, 25):
        for before in range(size + 1):
            proof = tree.prove_growth(before, size)
            assert is_growth(before, tree.root(before), size, tree.root(size), proof)
            assert not is_growth(before, tree.root(before), size, tree.root(size), [*proof, bytes(32)])
            if before:
                assert not is_growth(before, other.root(before), size, tree.root(size), proof)
                assert not is_growth(before, tree.root(before), size, other.root(size), proof)
            for place in range(len(proof)):
                assert not is_growth(before, tree.root(before), size, tree.root(size), proof[:place])
                wrong = [*proof[:place], bytes(32), *proof[place + 1 :]]
                assert not is_growth(before, tree.root(before), size, tree.root(size), wrong)
    assert not is_growth(5, tree.root(5), 4, tree.root(4), []), "a list does not shrink"


@pytest.mark.parametrize("size", [1, 2, 3, 6, 7, 8, 11])
def test_members_are_proved_for_every_subset_and_no_other_entry_is(size: int) -> None:
    tree = MerkleTree(ENTRIES)
    subsets = [chosen for n in range(1, min(size, 4) + 1) for chosen in combinations(range(size), n)]
    for places in subsets:
        entries, proof = {place: ENTRIES[place] for place in places}, tree.prove_members(places, size)
        assert has_members(entries, size, tree.root(size), proof)
        assert not has_members({**entries, places[0]: b"invented"}, size, tree.root(size), proof)
        assert not has_members(entries, size, tree.root(size), [*proof, bytes(32)])
        assert not (proof and has_members(entries, size, tree.root(size), proof[:-1]))
        if places[0]:
            moved = {place - 1: entry for place, entry in entries.items()}
            assert not has_members(moved, size, tree.root(size), proof)
    assert not has_members({size: ENTRIES[0]}, size, tree.root(size), [])
    assert not has_members({}, size, tree.root(size), [tree.root(size)]), "nothing was shown"


def test_a_cohort_of_a_large_directory_takes_few_hashes() -> None:
    tree = MerkleTree(n.to_bytes(32, "little") for n in range(20_000))
    places = sorted(random.Random(1).sample(range(20_000), 50))
    proof = tree.prove_members(places, 20_000)
    assert has_members({p: p.to_bytes(32, "little") for p in places}, 20_000, tree.root(), proof)
    assert len(proof) < 50 * 10
    assert len(tree.prove_growth(13_337, 20_000)) <= 16


def test_absurd_sizes_are_refused_at_once() -> None:
    assert not has_members({2**47: b""}, 2**48, bytes(32), [bytes(32)] * 10)
    assert not is_growth(2**47 + 1, bytes(32), 2**48, bytes(32), [bytes(32)] * 100)
