#!/usr/bin/env python3
"""The examples of a page of the documentation, as one program that runs them all on simulated machines.

    capi/tests/examples_of_page.py PAGE >examples.cpp

Each block of C++ is the body of a function, and its includes come first."""

import pathlib
import re
import sys

page = pathlib.Path(sys.argv[1])
blocks = re.findall(r"^```cpp\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
if not blocks:
    sys.exit(f"{page} has no examples")

includes = {"#include <cstdio>", "#include <exception>"}
functions = []
for number, block in enumerate(blocks, 1):
    lines = block.splitlines()
    includes.update(line for line in lines if line.startswith("#include"))
    body = "\n".join(line for line in lines if not line.startswith("#include")).strip("\n")
    functions.append(f"void example_{number}() {{\n{body}\n}}\n")

runs = "\n".join(f"        run({number}, example_{number});" for number in range(1, len(blocks) + 1))
print("\n".join(sorted(includes)))
print('#include "expect.hpp"\n\nnamespace {\n')
print("\n".join(functions))
print(f"""
void run(int number, void (*example)()) {{
    test::sim sim;
    try {{
        example();
    }} catch (std::exception const &thrown) {{
        std::fprintf(stderr, "example %d: %s\\n", number, thrown.what());
        ++test::failures;
    }}
}}

}} // namespace

int main() {{
{runs}
    return test::failures == 0 ? 0 : 1;
}}""")
