"""Links of the book to files that are not in it: each has to be there in the repository, and is shown as text."""

import re
from pathlib import Path

from mkdocs.exceptions import PluginError

DOCS = Path(__file__).resolve().parent.parent / "docs"


def on_page_markdown(markdown, page, config, files):
    folder = (DOCS / page.file.src_uri).parent

    def shown(link):
        path = (folder / link[2].split("#")[0]).resolve()
        if path.is_relative_to(DOCS):
            return link[0]
        if not path.exists():
            raise PluginError(f"{page.file.src_uri} links to {link[2]}, which is not there")
        return link[1]

    return re.sub(r"\[([^\]]*)\]\((?!\w+:|#)([^)\s]+)\)", shown, markdown)
