"""What a folder of pages leads to: each link within it is to a file, and to a place in it; and nothing that a page needs to be shown is
asked of a network.

    links.py FOLDER

A link to another site is for a reader to follow, and is allowed. Pages that rustdoc and `alluvion viz` make are looked at alike.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Elements that make a browser ask for something by themselves, and by which attributes.
ASKING = {
    "script": ["src"], "img": ["src", "srcset"], "source": ["src", "srcset"], "iframe": ["src"], "embed": ["src"], "object": ["data"],
    "video": ["src", "poster"], "audio": ["src"], "track": ["src"], "link": ["href"], "input": ["src"],
}
# Relations of `link` that no browser fetches.
TOLD = {"canonical", "next", "prev", "author", "license"}
REMOTE = re.compile(r"^(?:https?:)?//", re.I)


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.asked, self.styles, self.faults = set(), [], [], [], []
        self.titled, self.language, self.style, self.redirect = False, False, False, None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        for name in ("id", "name"):
            if named.get(name) and (name == "id" or tag == "a"):
                self.ids.add(named[name])
        if tag == "a" and "href" in named:
            self.links.append(named["href"] or "")
        if tag == "link" and TOLD & set((named.get("rel") or "").split()):
            return
        for name in ASKING.get(tag, ()):
            if named.get(name):
                self.asked.append(named[name])
        if named.get("style"):
            self.styles.append(named["style"])
        if tag == "img" and "alt" not in named:
            self.faults.append(f"a picture says nothing to who does not see it: {named.get('src')}")
        if tag == "meta" and (named.get("http-equiv") or "").lower() == "refresh":
            self.redirect = (named.get("content") or "").partition("url=")[2].strip()
            self.links.append(self.redirect)
        if re.fullmatch(r"[1-9]\d*", named.get("tabindex") or ""):
            self.faults.append("an order of its own for the keyboard (tabindex)")
        self.titled |= tag == "title"
        self.language |= tag == "html" and bool(named.get("lang"))
        self.style = tag == "style"

    def handle_data(self, data):
        if self.style:
            self.styles.append(data)

    def handle_endtag(self, tag):
        self.style = False


def asked_by_style(text):
    found = re.findall(r"url\(([^)]*)\)|@import\s+([\"'][^;]+);", text)
    return [(by_name or imported).strip("\"' ") for by_name, imported in found]


def main(folder):
    folder, faults, count = Path(folder).resolve(), [], 0
    pages = {path.resolve(): Page(path.read_text()) for path in sorted(folder.rglob("*.html"))}
    if not pages:
        sys.exit(f"{folder} has no page")

    def lookup(page, link, what):
        """The file that a link leads to; a fault is noted for one that leads nowhere."""
        if re.match(r"(data|javascript|mailto|about):", link):
            return None
        if REMOTE.match(link) or urlsplit(link).scheme:
            if what != "link":
                faults.append(f"{page.relative_to(folder)}: asks a network for {link}")
            return None
        path, _, fragment = link.partition("#")
        to = page if not path else (page.parent / unquote(path.partition("?")[0])).resolve()
        if to.is_dir():
            # A browser that reads files shows a list of them.
            faults.append(f"{page.relative_to(folder)}: {link} is a folder")
        elif not to.is_relative_to(folder) or not to.exists():
            faults.append(f"{page.relative_to(folder)}: {link} leads nowhere")
        elif fragment and to in pages and not fragment.startswith(":~:"):
            # rustdoc marks lines of a source by a script: `#12-40`. A browser looks for the name as it is, and then for what it means.
            if not {fragment, unquote(fragment)} & pages[to].ids and not re.fullmatch(r"\d+(-\d+)?", fragment):
                faults.append(f"{page.relative_to(folder)}: {link} has no such place")
        return to

    for path, page in pages.items():
        faults += [f"{path.relative_to(folder)}: {fault}" for fault in page.faults]
        if not page.titled:
            faults.append(f"{path.relative_to(folder)}: no title")
        if not page.language and page.redirect is None:
            faults.append(f"{path.relative_to(folder)}: of no language")
        for link in page.links:
            lookup(path, link, "link")
        for asked in page.asked:
            lookup(path, asked.split()[0], "part")
        for text in page.styles:
            for asked in asked_by_style(text):
                lookup(path, asked, "part")
        count += len(page.links) + len(page.asked)
    for path in folder.rglob("*.css"):
        for asked in asked_by_style(path.read_text()):
            lookup(path.resolve(), asked, "part")
    for path in folder.rglob("*.js"):
        # Not an address in a text, but one that a script fetches.
        for asked in re.findall(r"""(?:fetch|import|importScripts|open)\(\s*["'`](https?:)?//""", path.read_text(errors="replace")):
            faults.append(f"{path.relative_to(folder)}: asks a network: {asked}")
    for fault in sorted(set(faults)):
        print(fault, file=sys.stderr)
    print(f"{len(pages)} pages, {count} links and parts, {len(set(faults))} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
