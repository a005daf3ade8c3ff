"""The reference of the C library and of its headers for C++, as pages in Markdown: each declaration with the comment above it.

    c_reference.py INCLUDE FOLDER

What the C headers declare and nobody described is a fault. Of the headers in C++ what has a comment is on the page: names that are RMM's
have RMM's meaning, and no comment.
"""

import re
import sys
from pathlib import Path

HEADERS_OF_CPP = [
    "cpp/resource.hpp", "cpp/stream.hpp", "cpp/error.hpp", "cpp/device_buffer.hpp", "cpp/device_uvector.hpp", "cpp/device_scalar.hpp",
    "cpp/buffer.hpp", "cpp/scope.hpp", "cpp/reservation.hpp", "cpp/sleeper.hpp", "cpp/saved.hpp", "cpp/graph_memory.hpp", "cpp/segments.hpp",
    "cpp/shared.hpp", "cpp/per_device.hpp", "allocators.hpp", "pmr.hpp", "thrust.hpp", "rmm.hpp", "onnxruntime.hpp", "tensorrt.hpp",
]
# Headers that those are made of: their names are in the other headers.
UNDER_THEM = {"containers.hpp", "cpp/callback.hpp", "cpp/configuration.hpp", "cpp/rmm_errors.hpp", "cpp/thrown.hpp"}
GROUPS = [("function", "Functions"), ("struct", "Types"), ("define", "Constants")]


def in_markdown(text):
    """The words of a comment: no letter of them a mark, and their lists and examples kept."""
    paragraphs = []
    for paragraph in text.split("\n\n"):
        # Indented text is an example. A span of code may go over the end of a line.
        if not all(line.startswith("    ") for line in paragraph.splitlines()):
            parts = re.split(r"(``[^`]+``|`[^`]+`)", paragraph)
            paragraph = "".join(part if part.startswith("`") else re.sub(r"([<*_\[\]])", r"\\\1", part) for part in parts)
            paragraph = re.sub(r"(?m)^((?![-\s]).+)\n(- )", r"\1\n\n\2", paragraph)
        paragraphs.append(paragraph)
    return "\n\n".join(paragraphs).strip()


def comment_of(lines):
    """The text of a comment of either form."""
    words = [re.sub(r"^\s*(?:///?|/\*|\*/|\*(?!/))? ?", "", line).removesuffix("*/").rstrip() for line in lines]
    return "\n".join(words).strip()


# ---- C


def chunks(text):
    """The parts of a header between empty lines that are in no braces."""
    part, depth = [], 0
    for line in [*text.splitlines(), ""]:
        if line.strip() or depth:
            part.append(line)
            # What is in `extern "C"` is not within anything.
            depth += line.count("{") - line.count("}") if depth or not line.startswith(('extern "C"', "}", "#")) else 0
            if line.startswith('extern "C"'):
                part = []
        elif part:
            yield part
            part = []


def of_c(path):
    """What a header in C declares: kind, name, declaration and comment."""
    inside = False
    for part in chunks(path.read_text()):
        split = next((number for number, line in enumerate(part) if not inside and not re.match(r"\s*(//|/\*| \*)", line)), len(part))
        comment, code = comment_of(part[:split]), "\n".join(part[split:])
        if match := re.match(r"#define (ALV_\w+) (.+)", code):
            yield "define", match[1], code, comment
        elif match := re.match(r"typedef (?:struct|enum|union)\b.*?(\w+);\s*$", code, re.S):
            yield "struct", match[1], code, comment
        elif match := re.match(r"typedef [^{]*?(\w+);\s*$", code) or re.match(r"typedef [^{]*?\(\*(\w+)\)", code):
            yield "struct", match[1], code, comment
        elif match := re.match(r"enum (\w+)", code):
            yield "struct", match[1], code, comment
        elif match := re.match(r"(?:ALV_MUST_USE )?(?:static inline )?[\w\s*]+?\b(\w+)\([^{;]*\)(?=;| \{)", code):
            yield "function", match[1], match[0] + ";", comment


def c_page(include, faults):
    found = {}
    for header in ("alluvion.h", "alluvion/raw.h"):
        for kind, name, code, comment in of_c(include / header):
            found.setdefault(kind, {})[name] = [header, code, comment]
    functions = found["function"]
    for name, entry in functions.items():
        # Inline forms are described under the function that they call.
        if not entry[2] and f"{name}_raw" in functions:
            entry[2] = functions[f"{name}_raw"][2]
    parts = [
        "# Reference for C",
        "Each function, type and constant of `alluvion.h` and `alluvion/raw.h`. How they belong together, [the page about C](../capi/README.md) "
        "says, and [the list](../capi/functions.md) has a line for each function.",
    ]
    count = 0
    for kind, title in GROUPS:
        parts.append(f"## {title}")
        for name, (header, code, comment) in sorted(found.get(kind, {}).items()):
            if not comment:
                faults.append(f"{header}: nothing says what {name} is")
            parts.append(f"### {name}\n\n```c\n{code}\n```\n\n{in_markdown(comment)}")
            count += 1
    return "\n\n".join(parts) + "\n", count


# ---- C++


def declaration(lines, number):
    """The declaration that begins in a line: to its `;`, or to the braces of its body or the values of its members."""
    text, depth = "", 0
    for line in lines[number:]:
        for place, letter in enumerate(line):
            depth += (letter in "([") - (letter in ")]")
            rest = text + line[:place]
            if depth == 0 and (letter in ";{" or (letter == ":" and re.search(r"\)[\w\s]*$", rest) and line[place + 1 : place + 2] == " ")):
                return rest.rstrip()
        text += line + "\n"
    return text.rstrip()


def of_cpp(path):
    """What a header in C++ says of its public names: the class that has it, the declaration, the comment."""
    lines = path.read_text().splitlines()
    # Each open brace: the class that it is of, or None, and whether what is declared in it is public.
    scopes, comment, opening = [], [], ""
    for number, line in enumerate(lines):
        bare = line.strip()
        if bare.startswith("///"):
            comment.append(bare)
            continue
        hidden = any(not public for _, public in scopes)
        if comment and bare and not bare.startswith(("#", "template", "//")) or comment and bare.startswith("template"):
            begin = number
            text = declaration(lines, begin)
            if not hidden:
                owner = next((name for name, _ in reversed(scopes) if name), None)
                yield owner, "\n".join(one.removeprefix("    " if owner else "") for one in text.splitlines()), comment_of(comment)
            comment = []
        if re.match(r"(public|private|protected):", bare) and scopes:
            scopes[-1] = (scopes[-1][0], bare.startswith("public"))
        code = re.sub(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'', "", bare.split("//")[0])
        for letter in code:
            if letter == "{":
                named = re.search(r"\b(class|struct)\s+(?:\w+\s+)?(\w+)(?:<[^{;]*>)?(?:\s+final)?\s*(?::[^:].*)?$", opening.strip(), re.S)
                inner = re.search(r"\bnamespace\s+([\w:]*)\s*$", opening)
                if named:
                    scopes.append((named[2], named[1] == "struct"))
                elif inner:
                    scopes.append((None, not re.search(r"detail|callback", inner[1])))
                else:
                    # A body: nothing in it is public.
                    scopes.append((None, bool(re.search(r'extern\s*$', opening))))
                opening = ""
            elif letter == "}":
                if scopes:
                    scopes.pop()
                opening = ""
            elif letter == ";":
                opening = ""
            else:
                opening += letter
        opening += " "


def cpp_page(include, faults):
    there = {str(path.relative_to(include / "alluvion")) for part in ("*.hpp", "cpp/*.hpp") for path in (include / "alluvion").glob(part)}
    for header in there.symmetric_difference({*HEADERS_OF_CPP, *UNDER_THEM}):
        faults.append(f"{header} is on no list of c_reference.py, or is no more")
    parts = [
        "# Reference for C++",
        "What the headers under `alluvion.hpp` say of their names. How they belong together, [the page about C++](../capi/cpp.md) says.",
    ]
    count = 0
    for header in HEADERS_OF_CPP:
        text = (include / "alluvion" / header).read_text()
        question = next((line[2:].strip() for line in text.splitlines() if line.startswith("//")), "")
        rows, owner = [], None
        for one, code, comment in of_cpp(include / "alluvion" / header):
            if one != owner and one:
                rows.append(f"### {one.removeprefix('basic_')}" if one.startswith("basic_") else f"### {one}")
                owner = one
            rows.append(f"```cpp\n{code}\n```\n\n{in_markdown(comment)}")
            count += 1
        if rows:
            parts += [f"## alluvion/{header}", in_markdown(question), *rows]
    return "\n\n".join(part for part in parts if part) + "\n", count


def main(include, folder):
    include, folder, faults = Path(include), Path(folder), []
    folder.mkdir(parents=True, exist_ok=True)
    page, of_c_count = c_page(include, faults)
    (folder / "c.md").write_text(page)
    page, of_cpp_count = cpp_page(include, faults)
    (folder / "cpp.md").write_text(page)
    if of_c_count < 200 or of_cpp_count < 150:
        faults.append(f"{of_c_count} and {of_cpp_count} declarations were read, and there are more: at least 200 and 150")
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"C: {of_c_count} declarations; C++: {of_cpp_count}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
