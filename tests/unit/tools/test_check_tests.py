"""How tests are written is checked, and the check finds each breach."""

from __future__ import annotations

from pathlib import Path

import pytest

import check_tests

TESTS = Path(check_tests.__file__).parent.parent / "tests"
GOOD = """
def test_values(): assert 1 + 1 == 2
def test_errors():
    with pytest.raises(ValueError): int("x")
def test_refusals():
    with refused(TacitError, code): open_door()
def test_arrays(): np.testing.assert_allclose(1.0, 1.0)
def test_many(): check_all_ways()
def test_waits(thread, process, box):
    thread.join(10.0)
    process.wait(timeout=10)
    subprocess.run(["true"], timeout=10)
    subprocess.run(["true"], **bounded)
    assert ", ".join(["a"]) == box.get()
def helper(): pass
"""
BAD = {
    "asserts": "def test_nothing():\n    print(1 + 1)\n",
    "asks whether it was refused": "def test_nothing():\n    refused(TacitError)\n",
    "imports": "from test_other import World\n",
    "imports from a folder": "from laws.test_other import World\n",
    "imports a module": "import test_other\n",
    "sleeps": "def wait():\n    time.sleep(1)\n",
    "waits for a process": "def wait(process):\n    process.communicate()\n",
    "waits for a thread": "def wait(thread):\n    thread.join()\n",
    "runs": "def wait():\n    subprocess.run(['true'], check=True)\n",
    "connects": "def wait():\n    socket.create_connection(('127.0.0.1', 9))\n",
    "times": "def test_speed():\n    assert time.perf_counter() < 1\n",
}


@pytest.mark.slow
def test_every_test_here_keeps_the_rules() -> None:
    assert check_tests.problems(TESTS) == []


def test_what_is_right_is_not_complained_of(tmp_path: Path) -> None:
    (tmp_path / "test_good.py").write_text(GOOD)
    assert check_tests.problems(tmp_path) == []


@pytest.mark.parametrize("breach", BAD)
def test_each_breach_is_found(tmp_path: Path, breach: str) -> None:
    (tmp_path / "test_bad.py").write_text(BAD[breach])
    assert len(check_tests.problems(tmp_path)) == 1
