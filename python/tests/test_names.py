"""Every public name has a docstring, and its signature can be read."""

import importlib
import inspect
import pkgutil

import pytest

import alluvion
from alluvion import _alluvion

# Their import needs a library that is not everywhere, or ends the process.
SKIPPED = ("alluvion.__main__", "alluvion.rmm.__main__", "alluvion._path", "alluvion.dask", "alluvion._dask_transfer", "alluvion.rmm.allocators", "alluvion.cuda_core", "alluvion.numba", "alluvion.rapids")


def modules():
    found = ["alluvion", "alluvion._alluvion"]
    for module in pkgutil.walk_packages(alluvion.__path__, "alluvion."):
        if not module.name.startswith(SKIPPED) and module.name not in found:
            found.append(module.name)
    return found


def names_of(module):
    return [name for name in getattr(module, "__all__", dir(module)) if not name.startswith("__")]


@pytest.mark.parametrize("name", modules())
def test_a_module_says_what_it_is(name):
    module = importlib.import_module(name)
    assert module.__doc__ and module.__doc__.strip()
    if not name.startswith("alluvion.rmm") and name != "alluvion._pytest_plugin":
        assert hasattr(module, "__all__")


@pytest.mark.parametrize(
    ("name", "public"), [(name, public) for name in modules() for public in names_of(importlib.import_module(name))]
)
def test_a_public_name_is_there_and_explained(name, public):
    value = getattr(importlib.import_module(name), public)
    if inspect.isclass(value) or callable(value):
        assert value.__doc__, f"{name}.{public} has no docstring"
    if inspect.isbuiltin(value):
        assert value.__text_signature__ is not None


@pytest.mark.parametrize("name", [name for name in dir(_alluvion) if inspect.isclass(getattr(_alluvion, name))])
def test_a_native_class_explains_its_methods(name):
    kind = getattr(_alluvion, name)
    for public, value in vars(kind).items():
        if public.startswith("_"):
            continue
        assert value.__doc__, f"{name}.{public} has no docstring"
        if callable(value):
            value = getattr(kind, public)
            assert value.__text_signature__ is not None


def test_the_stub_names_what_the_module_has():
    import ast
    from pathlib import Path

    stub = Path(_alluvion.__file__).with_name("_alluvion.pyi")
    there = {
        node.name
        for node in ast.parse(stub.read_text()).body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_")
    }
    assert there == {name for name in dir(_alluvion) if not name.startswith("_")}


def test_types_are_shipped():
    from pathlib import Path

    assert Path(alluvion.__file__).with_name("py.typed").exists()


def callables():
    for name in alluvion.__all__:
        if callable(value := getattr(alluvion, name)):
            yield value
    for kind in vars(_alluvion).values():
        if inspect.isclass(kind):
            yield kind
            yield from (getattr(kind, name) for name in vars(kind) if not name.startswith("_"))


@pytest.mark.parametrize("value", [value for value in callables() if callable(value)], ids=str)
def test_everything_that_is_called_has_a_signature(value):
    assert inspect.signature(value) is not None


def everything_that_is_called():
    """Functions, classes and methods of every public module, each once, by the name that a user writes."""
    found = {}
    for name in modules():
        module = importlib.import_module(name)
        for public in names_of(module):
            value = getattr(module, public)
            if not callable(value) or not getattr(value, "__module__", "").startswith("alluvion"):
                continue
            # Those of the interpreter itself have none, and are raised rather than called.
            if inspect.isclass(value) and issubclass(value, BaseException):
                continue
            found[f"{name}.{public}"] = value
            if inspect.isclass(value):
                # What object has, as `__init__` of a class that has none, is not ours to describe.
                for method in (method for method in vars(value) if not method.startswith("_")):
                    found[f"{name}.{public}.{method}"] = getattr(value, method)
    return {name: value for name, value in found.items() if callable(value)}


def test_no_signature_is_hidden():
    without = []
    for name, value in everything_that_is_called().items():
        try:
            inspect.signature(value)
        except ValueError as refused:
            without.append(f"{name}: {refused}")
    assert not without
    assert len(everything_that_is_called()) > 500


def test_the_readme_reads_right_outside_of_a_clone():
    import re
    from pathlib import Path

    links = re.findall(r"\]\(([^)]*)\)", (Path(__file__).parents[1] / "README.md").read_text())
    assert links and not [link for link in links if not re.match(r"#|https://", link)]


def test_a_stream_may_be_left_out():
    parameters = inspect.signature(alluvion.DeviceBuffer.to_device).parameters
    assert list(parameters) == ["b", "stream"] and parameters["stream"].default is not inspect.Parameter.empty


def test_completion_shows_the_public_names():
    names = dir(alluvion)
    assert {"rmm", "testing", "dask", "cuda_core", *alluvion.__all__} <= set(names)
    assert not {"Any", "annotations", "TYPE_CHECKING"} & set(names)
    assert alluvion.cuda_core.__name__ == "alluvion.cuda_core"
