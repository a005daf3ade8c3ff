"""The site in a real browser: at the width of a telephone and of a desk, by day and by night, and by keyboard.

    browser.py FOLDER [PICTURES]

No page of ours is wider than its window; the first stop of the keyboard skips to the text; each stop is seen, in the order of the page, and
none holds the keyboard; text has a contrast of 4.5 to 1; and nothing but files is asked for. With PICTURES, a folder, what the pages look
like is laid there. It needs a Chromium, by ALLUVION_CHROMIUM or in PATH, and speaks with it through two pipes.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"]
# The first page, one with wide tables, one with long code, one that is all text, and the widest of what is generated.
PAGES = [
    "index.html", "figures.html", "guide/index.html", "guide/first-allocation.html", "reference/c.html", "reference/cpp.html",
    "reference/python/alluvion.html", "capi/functions.html", "gpu-report.html", "design/index.html",
]
SIZES = [(390, 844), (1280, 800)]
# A browser that does nothing for this long is not going to.
PATIENCE = 60
STOPS = 30

# Elements that are wider than the window, and do not scroll within themselves.
WIDER = """(() => {
  const wide = document.documentElement.scrollWidth - window.innerWidth;
  return wide > 0 ? [...document.querySelectorAll('main *, header *')].filter(one => one.getBoundingClientRect().right > window.innerWidth + 1
    && !one.closest('pre, table')).slice(0, 3).map(one => one.outerHTML.replace(/\\s+/g, ' ').slice(0, 90)).concat(wide + ' px') : [];
})()"""

# The element that the keyboard is on, and whether a reader sees that it is.
FOCUSED = """(() => {
  const one = document.activeElement;
  if (!one || one === document.body) return null;
  const style = getComputedStyle(one), box = one.getBoundingClientRect();
  return {
    what: one.outerHTML.replace(/\\s+/g, ' ').slice(0, 100), skip: one.classList.contains('skip'), height: box.height, width: box.width,
    within: box.right > 0 && box.bottom > 0 && box.left < window.innerWidth && box.top < window.innerHeight,
    ring: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2,
    place: [...document.querySelectorAll('*')].indexOf(one),
  };
})()"""

# Texts whose colour is too near to what is behind them. Only plain colours stand in the sheet.
FAINT = """(() => {
  const parts = colour => (colour.match(/[\\d.]+/g) || []).map(Number);
  const light = colour => { const [r, g, b] = parts(colour).map(v => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; });
    return .2126 * r + .7152 * g + .0722 * b; };
  const behind = one => { for (; one; one = one.parentElement) { const c = getComputedStyle(one).backgroundColor;
    if (parts(c).length === 3 || parts(c)[3] > 0) return c; } return 'rgb(255, 255, 255)'; };
  const found = new Set();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walk.nextNode());) {
    const one = node.parentElement;
    if (!node.textContent.trim() || !one.getClientRects().length) continue;
    const [a, b] = [light(getComputedStyle(one).color), light(behind(one))].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < 4.5) found.add(one.tagName + '.' + one.className + ': ' + node.textContent.trim().slice(0, 30));
  }
  return [...found].slice(0, 5);
})()"""


class Browser:
    """A Chromium, and one page of it."""

    def __init__(self, binary):
        self.folder = tempfile.mkdtemp(prefix="alluvion-site-")
        to_browser, ours = os.pipe()
        theirs, from_browser = os.pipe()[::-1]
        high = [fcntl.fcntl(end, fcntl.F_DUPFD, 50) for end in (to_browser, theirs)]

        def lay_pipes():
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        arguments = [binary, "--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
                     "--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe", f"--user-data-dir={self.folder}", "about:blank"]
        if os.geteuid() == 0:
            # Chromium refuses to run as root with its own sandbox.
            arguments.insert(1, "--no-sandbox")
        self.process = subprocess.Popen(
            arguments, preexec_fn=lay_pipes, pass_fds=(3, 4), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for end in (to_browser, theirs, *high):
            os.close(end)
        self.ours, self.from_browser, self.rest, self.number, self.events, self.session = ours, from_browser, b"", 0, [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def message(self, until):
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.from_browser], [], [], max(0, until - time.monotonic()))
            more = os.read(self.from_browser, 1 << 20) if ready else b""
            if not more:
                sys.exit(f"the browser said nothing for {PATIENCE} s" if not ready else "the browser has ended")
            self.rest += more
        text, _, self.rest = self.rest.partition(b"\0")
        return json.loads(text)

    def call(self, method, **parameters):
        self.number += 1
        said = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            said["sessionId"] = self.session
        os.write(self.ours, json.dumps(said).encode() + b"\0")
        until = time.monotonic() + PATIENCE
        while True:
            answer = self.message(until)
            if answer.get("id") == self.number:
                if "error" in answer:
                    sys.exit(f"the browser refused {method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, method):
        until = time.monotonic() + PATIENCE
        while True:
            for event in self.events:
                if event.get("method") == method:
                    self.events.remove(event)
                    return
            self.events.append(self.message(until))

    def open(self, url):
        self.events = [event for event in self.events if event.get("method") != "Page.loadEventFired"]
        self.call("Page.navigate", url=url)
        self.wait_for("Page.loadEventFired")

    def asked(self):
        """What was asked for that is no file."""
        urls = [event["params"]["request"]["url"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        self.events.clear()
        return [url for url in urls if not url.startswith(("file:", "data:", "about:", "blob:"))]

    def value(self, expression):
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def size(self, width, height, scheme):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def key(self, key, modifiers=0):
        code = {"Tab": 9, "Enter": 13}[key]
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, modifiers=modifiers)
        if key == "Enter":
            self.call("Input.dispatchKeyEvent", type="char", text="\r", key=key)

    def picture(self, path, whole=False):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]))


def keyboard(browser, page, faults):
    """Goes through a page by Tab."""
    places = []
    for stop in range(STOPS):
        browser.key("Tab")
        one = browser.value(FOCUSED)
        if one is None:
            break
        if stop == 0 and not one["skip"]:
            faults.append(f"{page}: the first stop of the keyboard skips nothing: {one['what']}")
        if not (one["ring"] and one["within"] and one["height"] > 1):
            faults.append(f"{page}: the keyboard is where nobody sees it: {one['what']}")
        if one["place"] in places:
            faults.append(f"{page}: the keyboard does not go on: {one['what']}")
            break
        places.append(one["place"])
    if places != sorted(places):
        faults.append(f"{page}: the keyboard goes in another order than the page")
    if len(places) < 5:
        faults.append(f"{page}: only {len(places)} stops")


def skips(browser, page, faults):
    """The skip link does so."""
    browser.key("Tab")
    browser.key("Enter")
    if browser.value("document.activeElement.id") != "text":
        faults.append(f"{page}: the skip link does not skip")


def found():
    return os.environ.get("ALLUVION_CHROMIUM") or next((path for path in map(shutil.which, NAMES) if path), None)


def main(folder, pictures=None):
    binary = found()
    if not binary:
        # Pages are text, and a browser brings no fonts.
        packages = Path(__file__).resolve().parent.parent / "packages"
        subprocess.run([packages, "chromium", "fonts-dejavu-core"], check=False, stdout=subprocess.DEVNULL)
        binary = found() or sys.exit("no Chromium: install one, or name one with ALLUVION_CHROMIUM")
    folder, faults, looked = Path(folder).resolve(), [], 0
    if pictures:
        pictures = Path(pictures)
        pictures.mkdir(parents=True, exist_ok=True)
    browser = Browser(binary)
    try:
        for page in PAGES:
            for width, height in SIZES:
                for scheme in ("light", "dark"):
                    browser.size(width, height, scheme)
                    browser.open((folder / page).as_uri())
                    name = f"{page} at {width}, {scheme}"
                    faults += [f"{name}: wider than the window: {what}" for what in browser.value(WIDER)]
                    faults += [f"{name}: too faint: {what}" for what in browser.value(FAINT)]
                    if pictures:
                        browser.picture(pictures / f"{page.removesuffix('.html').replace('/', '-')}-{width}-{scheme}.png")
                    faults += [f"{name}: asks for {url}" for url in browser.asked()]
                    looked += 1
                keyboard(browser, f"{page} at {width}", faults)
                browser.open((folder / page).as_uri())
                skips(browser, f"{page} at {width}", faults)
        # Pages that other programs draw ask for nothing, either.
        for page in ("viz.html", "rust/alluvion/index.html", "rust/alluvion_cli/index.html"):
            browser.open((folder / page).as_uri())
            faults += [f"{page}: asks for {url}" for url in browser.asked()]
            if pictures:
                browser.picture(pictures / f"{page.removesuffix('.html').replace('/', '-')}.png")
    finally:
        browser.close()
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{looked} looks at {len(PAGES)} pages in a browser, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
