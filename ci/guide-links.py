"""Links of the book and of the site to files that are not in it: each has to be there in the repository, and is shown as text."""

import os
import re
from pathlib import Path

from mkdocs.exceptions import PluginError

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


def on_page_markdown(markdown, page, config, files):
    beside = (config.extra or {}).get("beside", {})
    place = {name: page for page, name in beside.items()}.get(page.file.src_uri)
    # Where the page stands in the repository. What ci/site draws stands nowhere, and has its words from pages of these folders.
    folders = [(ROOT / place if place else DOCS / page.file.src_uri).parent, ROOT / "benches", DOCS]
    drawn = not (DOCS / page.file.src_uri).exists()

    def shown(link):
        to, _, fragment = link[2].partition("#")
        known = os.path.normpath(os.path.join(os.path.dirname(page.file.src_uri), to))
        if drawn and files.get_file_from_path(known):
            return link[0]
        paths = [(folder / to).resolve() for folder in (folders if drawn else folders[:1])]
        path = next((path for path in paths if path.exists()), paths[0])
        within = os.path.relpath(path, ROOT)
        name = beside.get(within) or (os.path.relpath(path, DOCS) if path.is_relative_to(DOCS) else None)
        if name and files.get_file_from_path(name):
            relative = os.path.relpath(name, os.path.dirname(page.file.src_uri) or ".")
            return f"[{link[1]}]({relative}{'#' if fragment else ''}{fragment})"
        if not path.exists():
            raise PluginError(f"{page.file.src_uri} links to {link[2]}, which is not there")
        return link[1]

    return re.sub(r"(?<!!)\[([^\]]*)\]\((?!\w+:|#)([^)\s]+)\)", shown, markdown)
