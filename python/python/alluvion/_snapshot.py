"""What a pool holds, at one moment."""

from __future__ import annotations

import os
from typing import Any

from alluvion import _alluvion


class Snapshot:
    """Every segment and every block of a pool at one moment: `stack.snapshot()`.

    `save` writes it as a page for a browser, or as JSON for the program `alluvion`. A notebook shows the page by itself.

    >>> import alluvion
    >>> with alluvion.simulated():
    ...     stack = alluvion.resource("pool(initial=4MiB) | cuda-async")
    ...     address = stack.allocate(1 << 20)
    ...     snapshot = stack.snapshot()
    ...     stack.deallocate(address, 1 << 20)
    ...     del stack
    >>> snapshot
    Snapshot(1 block live, 1048576 of 4194304 bytes, gpu 0)
    """

    def __init__(self, json: str) -> None:
        self._json = json
        self._facts: dict[str, Any] | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """What the JSON says: `device`, `status`, `segments`, `blocks` and more, as docs/snapshot-format.md tells."""
        if self._facts is None:
            import json

            self._facts = json.loads(self._json)
        return self._facts

    def to_json(self) -> str:
        """The snapshot as JSON."""
        return self._json

    def to_html(self) -> str:
        """The snapshot as a page for a browser."""
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            page = os.path.join(folder, "page.html")
            self.save(page)
            with open(page, encoding="utf-8") as file:
                return file.read()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the snapshot: as a page if the name ends in `.html`, as JSON if it ends in `.json`."""
        name = os.fspath(path)
        if name.endswith(".json"):
            with open(name, "w", encoding="utf-8") as file:
                file.write(self._json)
        elif name.endswith((".html", ".htm")):
            import tempfile

            with tempfile.TemporaryDirectory() as folder:
                written = os.path.join(folder, "snapshot.json")
                self.save(written)
                _alluvion.draw_page(written, name)
        else:
            raise ValueError(f"a snapshot is saved as .html or .json, and {name!r} is neither")

    def _repr_html_(self) -> str:
        import html

        page = html.escape(self.to_html(), quote=True)
        return f'<iframe srcdoc="{page}" width="100%" height="600" style="border: 0"></iframe>'

    def __repr__(self) -> str:
        status = self.facts["status"]
        blocks = status["live_blocks"]
        return (
            f"Snapshot({blocks} block{'' if blocks == 1 else 's'} live, {status['live_bytes']} of "
            f"{status['reserved_bytes']} bytes, gpu {self.facts['device']['ordinal']})"
        )


__all__ = ["Snapshot"]
