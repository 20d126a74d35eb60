"""A coordinator whose catalogue file changes, and copies of its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the field needs Flower")
from helpers.commands import run_command
from tacit.config import read_config
from tacit.errors import DataError, FieldError, StorageError
from tacit.field.coordinator_folder import hold_folder, restore_backup, write_backup
from tacit.field.serve import ServeConfig, open_federation

HEAD = "item,title,category,retired\n"
FIRST = "a,Apple,fruit|red,\nb,Bean,,\nc,Cherry,fruit,\n"


@pytest.fixture
def config(tmp_path: Path) -> ServeConfig:
    (tmp_path / "items.csv").write_text(HEAD + FIRST)
    (tmp_path / "field.yaml").write_text(
        f"folder: {tmp_path}/state\ncatalog: {tmp_path}/items.csv\nmethod: {{name: fpl, factors: 3, local_steps: 2}}\n"
        "privacy: none\n"
    )
    return read_config(ServeConfig, tmp_path / "field.yaml")


def change(config: ServeConfig, rows: str, amends: bool = True) -> tuple[int, list[str], list[int]]:
    Path(config.catalog).write_text(HEAD + rows)
    journal = open_federation(config, amends=amends)
    catalog = journal.catalog
    journal.close()
    retired = [] if catalog.retired is None else catalog.retired.tolist()
    return journal.federation.number, list(catalog.titles or ()), retired


def test_a_changed_file_is_published_once_and_items_keep_their_places(config: ServeConfig) -> None:
    open_federation(config).close()
    rows = "d,Date,fruit|dry,\nc,Sour cherry,fruit,\na,Apple,fruit|red,\nb,Bean,,yes\n"
    assert change(config, rows, amends=False) == (0, ["Apple", "Bean", "Cherry"], []), "an invitation changes nothing"
    after = (1, ["Apple", "Bean", "Sour cherry", "Date"], [1])
    assert change(config, rows) == after
    assert change(config, rows) == after
    assert change(config, rows.replace("b,Bean,,yes\n", "")) == after, "a retired item may leave the file"
    assert change(config, rows.replace("yes", "no")) == (2, after[1], [])


def test_a_bad_catalogue_is_refused_by_name_and_nothing_changes(config: ServeConfig) -> None:
    open_federation(config).close()
    for rows, said in (
        (FIRST + "b,Bean,,\n", "'b'"),
        (FIRST.replace("b,Bean,,\n", ""), "'b'"),
        (FIRST + ",Nothing,,\n", "line 5"),
        (FIRST.replace("b,Bean,,", "b,Bean,,perhaps"), "perhaps"),
        (FIRST.replace(",\n", ",yes\n"), "retired"),
    ):
        with pytest.raises(DataError, match=said):
            change(config, rows)
        assert change(config, FIRST) == (0, ["Apple", "Bean", "Cherry"], [])


def test_popularity_is_given_in_the_file_changes_with_it_and_may_go(config: ServeConfig) -> None:
    open_federation(config).close()

    def publish(content: str) -> tuple[int, list[float] | None]:
        Path(config.catalog).write_text(content)
        journal = open_federation(config, amends=True)
        found = journal.catalog.popularity
        journal.close()
        return journal.federation.number, None if found is None else found.tolist()

    head = "item,title,category,retired,popularity\n"
    given = head + "a,Apple,fruit|red,,3\nb,Bean,,yes,0.5\nc,Cherry,fruit,,\n"
    assert publish(given) == (1, [3.0, 0.5, 0.0])
    assert publish(given.replace("b,Bean,,yes,0.5\n", "")) == (1, [3.0, 0.5, 0.0]), "what is retired keeps its figure"
    later = given.replace(",3\n", ",1e3\n") + "d,Date,,,-0\n"
    assert publish(later) == (2, [1000.0, 0.5, 0.0, 0.0])
    for wrong in ("-1", "nan", "inf", "1e999", "much"):
        with pytest.raises(DataError, match=f"'{wrong}' in line 4"):
            publish(given.replace("fruit,,\n", f"fruit,,{wrong}\n"))
    assert publish(later) == (2, [1000.0, 0.5, 0.0, 0.0]), "nothing changed"
    assert publish(HEAD + FIRST + "d,Date,,\n") == (3, None)


def test_a_folder_has_one_coordinator_and_copies_that_open(config: ServeConfig, tmp_path: Path) -> None:
    journal = open_federation(config)
    with hold_folder(config.folder):
        write_backup(config.folder, tmp_path / "copy.tar.gz")
        with pytest.raises(FieldError), hold_folder(config.folder):
            pass
    with pytest.raises(StorageError):
        write_backup(config.folder, tmp_path / "copy.tar.gz")
    with pytest.raises(StorageError):
        restore_backup(tmp_path / "copy.tar.gz", config.folder)
    with pytest.raises(StorageError):
        restore_backup(tmp_path / "items.csv", tmp_path / "other")
    again = restore_backup(tmp_path / "copy.tar.gz", tmp_path / "other")
    assert again.federation == journal.federation
    assert again.seed == journal.seed
    assert again.rounds.next_number == 10, "numbers that devices may have seen are left out"
    again.close()
    journal.close()


def test_a_roll_back_to_a_model_that_is_not_there_is_one_message_and_changes_nothing(
    config: ServeConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("federation", "rollback", str(tmp_path / "field.yaml"))
    code, _, err = run_command(capsys, *words, "0")
    assert code == StorageError.exit_code, "nothing is founded here"
    assert not config.folder.exists(), "and it is not founded by this"
    open_federation(config).close()
    before = (config.folder / "journal.db").read_bytes()
    Path(config.catalog).write_text(HEAD + FIRST + "d,Date,fruit,\n")
    code, _, err = run_command(capsys, *words, "41")
    assert (code, "41" in err, "Traceback" in err) == (StorageError.exit_code, True, False)
    with hold_folder(config.folder):
        assert run_command(capsys, *words, "0")[0] == FieldError.exit_code, "while it is served"
    assert (config.folder / "journal.db").read_bytes() == before


def test_invitations_are_made_listed_and_taken_back(config: ServeConfig) -> None:
    journal = open_federation(config)
    journal.invitations.make_many(3, 100, "ours")
    (word,) = journal.invitations.make_many(1, 100, "yours")
    (late,) = journal.invitations.make_many(1, 50)
    pending = journal.invitations.pending(60)
    assert [one.label for one in pending].count("ours") == 3
    assert len(pending) == 4
    assert journal.invitations.revoke("none such") == 0
    assert journal.invitations.revoke("ours") == 3
    assert journal.members.enrol(late, b"k1", 60) is None
    assert journal.members.enrol(word, b"k2", 60) == 1
    assert journal.members.enrol(word, b"k3", 60) is None, "used twice"
    assert [device.label for device in journal.members.devices()] == ["yours"]
    assert "yours" not in repr(journal.members.devices())
    assert journal.invitations.pending(60) == []
    journal.close()
