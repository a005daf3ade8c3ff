"""Writes the wheel `alluvion-rapids` out of a folder of modules, after a look at what they ask of the machine that they are loaded on.

    pack.py PACKAGE VERSION OUT     PACKAGE has the folder alluvion_rapids with the modules in it
"""

import base64
import hashlib
import os
import platform
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

#: The C library of 2021, with which functions of others moved into it that RMM's headers call, and the C++ library of GCC 11 that came with it.
#: On older systems, which RMM's own wheels are for too, a module is built.
NEWEST = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13)}
TAG = f"cp311-abi3-manylinux_2_34_{platform.machine()}"

METADATA = """Metadata-Version: 2.4
Name: alluvion-rapids
Version: {version}
Summary: The modules of alluvion.rapids, compiled for each RMM
Author: the Alluvion developers
License-Expression: MIT OR Apache-2.0
License-File: LICENSE-APACHE
License-File: LICENSE-MIT
Requires-Python: >=3.11
Requires-Dist: alluvion=={version}
Description-Content-Type: text/markdown

# The modules of `alluvion.rapids`

`alluvion.rapids` has a genuine resource of RMM, and compiles it for the RMM that is installed. With this package nothing is compiled: it has
the modules for RMM {known}, for CUDA 12 and 13, and `alluvion.rapids` takes the one that fits. It has nothing to import.
"""

INIT = '''"""The modules of `alluvion.rapids`, one for each RMM. `alluvion.rapids` finds them; there is nothing to import here."""\n'''


def defined_by_the_cpp_library() -> dict[str, str]:
    """The names that the C++ library defines, with the version of each."""
    library = subprocess.check_output(["g++", "-print-file-name=libstdc++.so.6"], text=True).strip()
    names = subprocess.check_output(["nm", "-D", "--defined-only", "--with-symbol-versions", library], text=True)
    return dict(line.split()[-1].split("@@") for line in names.splitlines() if "@@" in line)


def too_new(module: Path, cpp: dict[str, str]) -> list[str]:
    """The names that a module takes of others and that machines of NEWEST do not have. Those of the C++ library have no version in it."""
    found = []
    for line in subprocess.check_output(["nm", "-D", "--undefined-only", module], text=True).splitlines():
        name, _, version = line.split()[-1].partition("@")
        version = version.lstrip("@") or cpp.get(name, "")
        kind, _, numbers = version.partition("_")
        if kind in NEWEST and re.fullmatch(r"[\d.]+", numbers) and tuple(map(int, numbers.split("."))) > NEWEST[kind]:
            found.append(f"{name} of {version}")
    return found


def main(package: Path, version: str, out: Path) -> None:
    modules = sorted((package / "alluvion_rapids").glob("rmm-*.abi3.so"))
    cpp = defined_by_the_cpp_library()
    if not modules or not cpp:
        sys.exit("pack.py: there is no module, or no C++ library to compare with")
    for module in modules:
        if new := too_new(module, cpp):
            sys.exit(f"pack.py: {module.name} needs a newer machine than {TAG}: {', '.join(new)}")
    known = [module.name.split("-")[1].rsplit(".", 1)[0] for module in modules]
    about = f"alluvion_rapids-{version}.dist-info"
    files = {f"alluvion_rapids/{module.name}": module.read_bytes() for module in modules}
    files["alluvion_rapids/__init__.py"] = INIT.encode()
    for licence in ("LICENSE-APACHE", "LICENSE-MIT"):
        files[f"{about}/licenses/{licence}"] = Path(licence).read_bytes()
    files[f"{about}/METADATA"] = METADATA.format(version=version, known=", ".join(known)).encode()
    files[f"{about}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: ci/rapids-wheel\nRoot-Is-Purelib: false\nTag: {TAG}\n".encode()
    record = f"{about}/RECORD"
    lines = [f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}" for name, data in files.items()]
    files[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    wheel = out / f"alluvion_rapids-{version}-{TAG}.whl"
    when = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, when)
            entry.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
    print(f"{wheel.name}: {wheel.stat().st_size} bytes, for RMM {', '.join(known)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
