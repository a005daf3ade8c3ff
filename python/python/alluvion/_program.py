"""The program `alluvion`, which the library's own package carries."""

from __future__ import annotations

import os
import sys
from typing import NoReturn, Sequence

from alluvion import _alluvion


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the program and ends the process with its exit code: the console script `alluvion`."""
    import signal

    # The program runs without the interpreter, whose own handler would wait for its return.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if arguments is None:
        arguments = sys.argv[1:]
    code = _alluvion.run_program(["alluvion", *arguments])
    sys.exit(code)


class ProgramFailed(RuntimeError):
    """The program `alluvion` ended with another exit code than 0."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message, code)
        #: 1 failed, 2 the command line was not understood.
        self.code = code

    def __str__(self) -> str:
        return str(self.args[0])


def run(*arguments: str | os.PathLike[str]) -> str:
    """Runs the program with these arguments, in a process of its own, and returns what it prints.

    >>> import alluvion
    >>> print(alluvion.run("--version"), end="")
    alluvion 0.1.0
    """
    import subprocess

    words = [os.fspath(argument) for argument in arguments]
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    program = "import sys; sys.path.insert(0, sys.argv.pop(1)); from alluvion._program import main; main()"
    # -P: a file of the caller's folder that is called like a module is none.
    command = [sys.executable, "-P", "-c", program, folder, *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        message = ended.stderr.strip() or f"the program ended with exit code {ended.returncode}"
        raise ProgramFailed(message, ended.returncode)
    return ended.stdout


def _options(options: dict[str, object]) -> list[str]:
    words = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            words.append(option)
        elif value is not False and value is not None:
            words += [option, str(value)]
    return words


def replay(log: str | os.PathLike[str], *recipes: str, **options: object) -> str:
    """Plays a log on the stacks that are named, and returns what the program says: `alluvion replay LOG -r RECIPE`.

    Options of the program are keywords: `json=True`, `rounds=2`, `driver="sim"`, `sim_memory="24GiB"`.
    """
    words = [word for recipe in recipes for word in ("--resource", recipe)]
    return run("replay", log, *words, *_options(options))


def tune(log: str | os.PathLike[str], **options: object) -> str:
    """Searches the best stack for a log, and returns what the program says: `alluvion tune LOG`."""
    return run("tune", log, *_options(options))


def doctor(**options: object) -> str:
    """Says what this machine can do: `alluvion doctor`. With `driver="sim"` a simulated one, with `json=True` for programs.

    >>> import alluvion
    >>> report = alluvion.doctor(driver="sim")
    >>> "memory" in report
    True
    """
    return run("doctor", *_options(options))


def draw(log: str | os.PathLike[str], page: str | os.PathLike[str]) -> str:
    """Draws a log or a snapshot as a page for a browser: `alluvion viz LOG -o PAGE`. Returns what the program says."""
    return _alluvion.draw_page(os.fspath(log), os.fspath(page))


__all__ = ["ProgramFailed", "doctor", "draw", "main", "replay", "run", "tune"]
