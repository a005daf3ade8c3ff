"""The reference of the package for Python, as pages in Markdown: what its sources declare, and what its docstrings say.

    python_reference.py PACKAGE FOLDER

PACKAGE is the folder `alluvion` with the native module in it, whose docstrings are those of its functions; its signatures are those of its
stubs. A public name without a docstring is a fault, but for methods whose names and order others have settled.
"""

import ast
import importlib
import re
import sys
from pathlib import Path

# A page each, and which modules stand on it.
PAGES = {
    "alluvion": ["alluvion", "alluvion.errors"],
    "pinned": ["alluvion.pinned"],
    "testing": ["alluvion.testing"],
    "frameworks": [
        "alluvion.cupy", "alluvion.numba", "alluvion.warp", "alluvion.nvmath", "alluvion.cuda_core", "alluvion.dask", "alluvion.vllm",
        "alluvion.torch_memory_saver",
    ],
    "torch": ["alluvion.torch", "alluvion.torch.build"],
    "rapids": ["alluvion.rapids", "alluvion.rapids.build"],
    "rmm": ["alluvion.rmm", "alluvion.rmm.mr", "alluvion.rmm.statistics"],
}
NATIVE = "alluvion._alluvion"
# Dunder methods that say how a thing is used.
SPOKEN = {"__enter__", "__call__", "__getitem__", "__iter__", "__len__", "__cuda_stream__", "__dlpack__"}


class Module:
    """A module as its source has it, never imported: frameworks that it is for need not be there."""

    def __init__(self, package, name):
        place = package.parent / name.replace(".", "/")
        files = [place / "__init__.py", place.with_suffix(".py"), place.with_suffix(".pyi")]
        file = next((file for file in files if file.exists()), None)
        if file is None:
            sys.exit(f"there is no module {name}")
        self.name, self.lines = name, file.read_text().splitlines()
        self.tree = ast.parse("\n".join(self.lines))
        self.defined, self.imported, self.names = {}, {}, None
        for node in self.tree.body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                self.defined[node.name] = node
            elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "alluvion":
                self.imported |= {alias.asname or alias.name: (node.module, alias.name) for alias in node.names}
            elif isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]:
                # One that is computed is of all that the module defines.
                self.names = ast.literal_eval(node.value) if isinstance(node.value, ast.List) else None
        if self.names is None:
            self.names = [name for name in self.defined if not name.startswith("_")]


class Package:
    def __init__(self, folder):
        self.folder, self.modules = folder, {}
        sys.path.insert(0, str(folder.parent))
        sys.dont_write_bytecode = True
        try:
            self.native = importlib.import_module(NATIVE)
        except ImportError as error:
            sys.exit(f"the native module is not there, which python/develop builds: {error}")

    def module(self, name):
        if name not in self.modules:
            self.modules[name] = Module(self.folder, name)
        return self.modules[name]

    def found(self, module, name):
        """Where a name is defined: its module and its node; None for a module or a value."""
        seen = self.module(module)
        if name in seen.defined:
            return module, seen.defined[name]
        if name in seen.imported:
            there, other = seen.imported[name]
            place = self.folder.parent / f"{there}.{other}".replace(".", "/")
            is_module = place.is_dir() or place.with_suffix(".py").exists()
            return None if is_module else self.found(there, other)
        return None

    def said(self, module, path, node):
        """The docstring of what a module has at a path, as `Stack.stats`."""
        if module == NATIVE:
            thing = self.native
            for part in path.split("."):
                thing = getattr(thing, part, None)
            text = (getattr(thing, "__doc__", None) or "").strip()
            # What Python says of each slot of that name.
            if text and not path.rsplit(".", 1)[-1].startswith("__"):
                return text
        return ast.get_docstring(node) or ""


def in_markdown(text):
    """A docstring as Markdown: its examples in fences, and no letter of its prose a mark."""
    out, example = [], []

    def end_example():
        if example:
            out.extend(["", "```pycon", *example, "```", ""])
            example.clear()

    for line in text.splitlines():
        if line.lstrip().startswith(">>>") or (example and line.strip()):
            example.append(line.removeprefix("    ") if example and example[0].startswith("    ") else line)
            continue
        end_example()
        out.append(line)
    end_example()
    # A span of code may go over the end of a line.
    parts = re.split(r"(```.*?```|``[^`]+``|`[^`]+`)", "\n".join(out), flags=re.S)
    text = "".join(part if part.startswith("`") else re.sub(r"([<*_\[\]])", r"\\\1", part) for part in parts)
    # A list needs an empty line above it.
    return re.sub(r"(?m)^((?![-\s]).+)\n(- )", r"\1\n\n\2", text).strip()


def signature(node, name):
    decorators = {ast.unparse(one) for one in node.decorator_list}
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    if "property" in decorators:
        return f"{name}{returns.replace(' -> ', ': ')}"
    arguments = node.args
    bound = {"staticmethod"}.isdisjoint(decorators)
    text = ast.unparse(arguments)
    if bound and "." in name:
        text = re.sub(r"^(self|cls)(, /)?(, |$)", "", text)
    whole = f"{name}({text}){returns}"
    if len(whole) > 100:
        pieces = [ast.unparse(one) for one in split_arguments(arguments, bound and "." in name)]
        whole = f"{name}(\n" + "".join(f"    {piece},\n" for piece in pieces) + f"){returns}"
    return ("async " if isinstance(node, ast.AsyncFunctionDef) else "") + whole


def split_arguments(arguments, bound):
    """Each argument by itself, with the signs between them."""
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    pieces = []
    for argument, default in zip(plain, defaults):
        pieces.append(one_argument(argument, default))
        if arguments.posonlyargs and argument is arguments.posonlyargs[-1]:
            pieces.append(ast.Name("/"))
    if bound:
        pieces = pieces[1:]
    if arguments.vararg:
        pieces.append(ast.Name("*" + ast.unparse(arguments.vararg)))
    elif arguments.kwonlyargs:
        pieces.append(ast.Name("*"))
    pieces += [one_argument(*pair) for pair in zip(arguments.kwonlyargs, arguments.kw_defaults)]
    if arguments.kwarg:
        pieces.append(ast.Name("**" + ast.unparse(arguments.kwarg)))
    return pieces


def one_argument(argument, default):
    text = ast.unparse(argument)
    if default is not None:
        text += (" = " if argument.annotation else "=") + ast.unparse(default)
    return ast.Name(text)


def fields(module, node):
    """The fields of a class, with the comment of each: lines of `#:` above it."""
    rows = []
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and not ast.unparse(item.target).startswith("_"):
            above, number = [], item.lineno - 2
            while number >= 0 and module.lines[number].strip().startswith("#:"):
                above.insert(0, module.lines[number].strip()[2:].strip())
                number -= 1
            rows.append(f"- `{ast.unparse(item)}`" + (f": {in_markdown(' '.join(above))}" if above else ""))
    return "\n".join(rows)


def described(package, module, name, shown, faults):
    """A name of a module, as Markdown."""
    found = package.found(module, name)
    if found is None:
        return ""
    there, node = found
    text = package.said(there, node.name, node)
    if not text:
        faults.append(f"{module}.{name} has no docstring")
    head = f"### {shown}\n\n"
    if not isinstance(node, ast.ClassDef):
        return f"{head}```python\n{signature(node, shown)}\n```\n\n{in_markdown(text)}\n\n"
    methods = [item for item in node.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))]
    made = next((item for name in ("__init__", "__new__") for item in methods if item.name == name), None)
    bases = [ast.unparse(base).removeprefix("_alluvion.") for base in node.bases]
    bases = [base for base in bases if not base.startswith("_") and base != "NamedTuple"]
    line = f"class {shown}" + (f"({', '.join(bases)})" if bases else "")
    if made is not None:
        arguments = signature(made, f"{shown}.").replace(f"{shown}.(", f"{shown}(", 1)
        line += "\n\n" + re.sub(r"\) -> .*$", ")", arguments)
    parts = [f"{head}```python\n{line}\n```\n", in_markdown(text), fields(package.module(there), node)]
    for item in methods:
        if item.name.startswith("_") and item.name not in SPOKEN or any("setter" in ast.unparse(one) for one in item.decorator_list):
            continue
        said = package.said(there, f"{node.name}.{item.name}", item)
        call = signature(item, f"{node.name}.{item.name}")
        parts.append(f"```python\n{call}\n```\n\n{in_markdown(said)}")
    # What is inherited from the native module has its own words there.
    for base in node.bases:
        if ast.unparse(base).startswith("_alluvion."):
            own = {item.name for item in methods}
            native = package.found(NATIVE, ast.unparse(base).removeprefix("_alluvion."))
            for item in (one for one in native[1].body if isinstance(one, ast.FunctionDef)) if native else ():
                if not item.name.startswith("_") and item.name not in own:
                    said = package.said(NATIVE, f"{native[1].name}.{item.name}", item)
                    parts.append(f"```python\n{signature(item, f'{node.name}.{item.name}')}\n```\n\n{in_markdown(said)}")
    return "\n\n".join(part for part in parts if part) + "\n\n"


def main(package, folder):
    package, folder, faults = Package(Path(package).resolve()), Path(folder), []
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for page, modules in PAGES.items():
        title = f"# {modules[0]}" if len(modules) < 4 else "# Doors to frameworks"
        parts = [title]
        for number, name in enumerate(modules):
            module = package.module(name)
            said = ast.get_docstring(module.tree)
            if not said:
                faults.append(f"{name} has no docstring")
            parts.append((f"## {name}\n\n" if number or title != f"# {name}" else "") + in_markdown(said or ""))
            for one in module.names:
                text = described(package, name, one, one, faults) if not one.startswith("__") else ""
                count += bool(text)
                parts.append(text)
        (folder / f"{page}.md").write_text("\n\n".join(part for part in parts if part) + "\n")
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"the package for Python: {count} names on {len(PAGES)} pages")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
