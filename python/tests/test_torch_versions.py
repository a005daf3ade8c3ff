"""What `alluvion.torch` says where there is no PyTorch, or one that it has no door for, or nothing to build it with."""

import os
import subprocess
import sys

import pytest

import alluvion.torch
from alluvion._per_device import stacks_of


def run(program, *paths, **environment):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, paths), os.environ["PYTHONPATH"]]), **environment}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=60)


INSTALL = "import alluvion.torch; alluvion.torch.install('cuda')"


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("raise ImportError('it is broken')", "needs the package torch, which cannot be imported: it is broken"),
        ("__version__ = '2.7.1+cu126'", "has no door for torch 2.7.1+cu126: it has them for 2.8 to 2.15"),
        ("__version__ = '2.16.0'", "has no door for torch 2.16.0"),
        ("__version__ = '3.9.0'", "has no door for torch 3.9.0"),
        ("__version__ = 'dev'", "has no door for torch dev"),
        ("", "has no door for torch unknown"),
        ("__version__ = '2.11.0+cpu'\nclass version: cuda = None", "needs a PyTorch with CUDA, and torch 2.11.0+cpu was built without it"),
    ],
)
def test_a_pytorch_without_a_door_is_an_import_error(tmp_path, module, said):
    (tmp_path / "torch.py").write_text(module)
    ended = run(INSTALL, tmp_path)
    assert ended.returncode == 1 and "ImportError: alluvion.torch" in ended.stderr and said in ended.stderr


@pytest.fixture
def torch(tmp_path):
    """A folder with a package that says it is a PyTorch."""
    package = tmp_path / "site" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "__version__ = '2.11.0+cu130'\nclass version: cuda, git_version = '13.0', 'abc'\ndef compiled_with_cxx11_abi(): return True\n"
    )
    return package.parent


def test_what_a_build_needs_is_named_all_at_once(torch, tmp_path):
    environment = {"PATH": "/nonexistent", "CXX": "", "XDG_CACHE_HOME": str(tmp_path), "CUDA_HOME": "", "CUDA_PATH": ""}
    ended = run(INSTALL, torch, **environment)
    assert ended.returncode == 1
    said = ended.stderr.splitlines()[-1]
    assert said.startswith("alluvion._compiled.tools.CannotBuild: to build it, there is missing: a compiler of C++")
    assert "the headers of PyTorch" in said


def test_a_process_in_which_pytorch_caches_nothing_is_refused(torch):
    ended = run(INSTALL, torch, PYTORCH_NO_CUDA_MEMORY_CACHING="1")
    assert "RuntimeError: PyTorch has no allocator to take the place of while PYTORCH_NO_CUDA_MEMORY_CACHING is set" in ended.stderr


def test_the_module_itself_needs_no_pytorch(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('it is broken')")
    ended = run("import alluvion.torch, alluvion.torch.build; print(alluvion.torch.installed())", tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "None\n"), ended.stderr


def test_what_is_not_installed_cannot_be_uninstalled():
    with pytest.raises(RuntimeError, match="alluvion.torch is not installed"):
        alluvion.torch.uninstall()


def test_the_command_names_what_is_wrong(tmp_path):
    (tmp_path / "torch.py").write_text("__version__ = '1.0'")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])}
    command = [sys.executable, "-m", "alluvion.torch.build"]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert ended.returncode == 1 and ended.stderr.startswith("alluvion.torch.build: alluvion.torch has no door for torch 1.0")


def test_an_install_takes_recipes_and_stacks(sim):
    stack = alluvion.Stack("cuda", 0)
    assert dict(stacks_of(stack, None)) == {0: stack} and stacks_of({0: stack}, None) == {0: stack}
    assert list(stacks_of("cuda", [0])) == [0]
    with pytest.raises(ValueError, match="stacks have their devices: leave `devices` out"):
        stacks_of(stack, [0])
    with pytest.raises(TypeError, match="a recipe, a stack, or the stacks of several devices, and not int"):
        stacks_of(7, None)
