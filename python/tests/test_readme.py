"""The README's examples are programs that run, and so is the first program."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import alluvion

HERE = Path(__file__).parents[1]
TEXT = (HERE / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.M | re.S)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_an_example_runs(number, tmp_path):
    # A file: the lines of Python are its own.
    program = tmp_path / "example.py"
    program.write_text(BLOCKS[number])
    run(program, tmp_path)


def test_the_first_program_runs(tmp_path):
    printed = run(HERE / "first.py", tmp_path)
    assert "orders: 48 MiB in 1 allocations" in printed
    assert "first.py:" in printed
    assert (tmp_path / "pool.html").read_text().lower().startswith("<!doctype html>")


def test_there_are_examples():
    assert len(BLOCKS) == 2


def run(program, folder):
    environment = {"PYTHONPATH": str(Path(alluvion.__file__).parents[1]), "PATH": "/usr/bin:/bin"}
    ended = subprocess.run(
        [sys.executable, "-W", "error", str(program)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    return ended.stdout
