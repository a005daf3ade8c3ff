"""Runs a program for which `rmm` is this package, in the process and in its children."""

from __future__ import annotations

import os
import runpy
import sys

from alluvion.rmm._install import _path_folder, install

USAGE = """\
usage: python -m alluvion.rmm [-m module | -c text | script] [argument ...]
       python -m alluvion.rmm --path

Runs a Python program for which `import rmm` gives alluvion.rmm, in every process that it starts, too.
With --path it prints a folder: PYTHONPATH with that folder first does the same."""


def main(arguments: list[str]) -> int:
    """Does what the arguments say, and returns the status of the process."""
    if arguments == ["--path"]:
        print(_path_folder())
        return 0
    if arguments in (["-h"], ["--help"]):
        print(USAGE)
        return 0
    kinds = {"-m": 1, "-c": 1}
    if not arguments or len(arguments) <= kinds.get(arguments[0], 0):
        print(USAGE, file=sys.stderr)
        return 2
    first = arguments[0]
    if first.startswith("-") and first not in kinds:
        print(f"unknown option {first}\n{USAGE}", file=sys.stderr)
        return 2
    paths = [_path_folder(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(path for path in paths if path))
    install()
    if first == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv = ["-c", *arguments[2:]]
        exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})
    else:
        sys.argv = arguments
        # The folder of the script, as `python script.py` has it, in place of the working directory.
        sys.path[0] = os.path.dirname(os.path.abspath(first))
        runpy.run_path(first, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
