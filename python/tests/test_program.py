"""The program `alluvion`, from Python."""

import json
import os
import signal
import subprocess
import sys

import pytest

import alluvion


def program(*arguments, **options):
    command = [sys.executable, "-m", "alluvion", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


@pytest.fixture
def log(sim, tmp_path):
    path = tmp_path / "log.csv"
    stack = alluvion.resource(f'logging(file="{path}") | cuda')
    for size in (1000, 1 << 20, 77):
        stack.deallocate(stack.allocate(size), size)
    stack.flush()
    return path


def test_the_exit_codes_are_those_of_the_program(tmp_path):
    said = program("--version")
    assert (said.returncode, said.stdout) == (0, f"alluvion {alluvion.__version__}\n")
    assert program("--help").returncode == 0
    assert program("dance").returncode == 2
    missing = program("viz", tmp_path / "none.csv", "-o", tmp_path / "page.html")
    assert missing.returncode == 1 and missing.stderr.startswith("error: ")


def test_functions_run_the_program(log, tmp_path):
    assert "pool | null" in alluvion.replay(log, "pool", driver="null", rounds=1) or alluvion.replay(
        log, "pool", driver="sim", rounds=1
    )
    assert json.loads(alluvion.replay(log, "pool", driver="sim", rounds=1, json=True).splitlines()[0])
    assert "pool" in alluvion.tune(log, candidates=4)
    assert json.loads(alluvion.doctor(driver="sim", json=True))
    assert "6 events" in alluvion.draw(log, tmp_path / "page.html")
    assert alluvion.run("export", log, "-f", "perfetto", "-o", tmp_path / "trace.json") is not None
    json.loads((tmp_path / "trace.json").read_text())


def test_failures_are_exceptions(tmp_path):
    with pytest.raises(alluvion.ProgramFailed, match="none.csv") as raised:
        alluvion.replay(tmp_path / "none.csv")
    assert raised.value.code == 1
    with pytest.raises(alluvion.ProgramFailed) as raised:
        alluvion.replay(tmp_path / "none.csv", fly=3)
    assert raised.value.code == 2 and isinstance(raised.value, RuntimeError)


@pytest.mark.skipif(not hasattr(signal, "SIGINT") or os.name == "nt", reason="signals of POSIX")
def test_an_interrupt_ends_the_program(tmp_path):
    fifo = tmp_path / "log.csv"
    os.mkfifo(fifo)
    command = [sys.executable, "-m", "alluvion", "replay", str(fifo), "--driver", "sim"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    # Opening returns when the program has opened the other end: it reads, and no interpreter runs.
    with open(fifo, "wb"):
        running.send_signal(signal.SIGINT)
        running.communicate()
    assert running.returncode == -signal.SIGINT
