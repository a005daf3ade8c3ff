// @ts-check
// Mouse, keyboard, and the first frame.

const tip = byId("tip");

/** @param {string | null} words @param {{ clientX: number, clientY: number }} at */
function showTip(words, at) {
  tip.hidden = words === null;
  if (words === null) return;
  tip.textContent = words;
  const { width, height } = tip.getBoundingClientRect();
  const x = at.clientX + 16 + width > window.innerWidth ? at.clientX - width - 12 : at.clientX + 16;
  const y = at.clientY + 18 + height > window.innerHeight ? at.clientY - height - 12 : at.clientY + 18;
  tip.style.left = `${Math.max(4, x)}px`;
  tip.style.top = `${Math.max(4, y)}px`;
}

/** @param {number} step @param {number | null} failure that is drawn there */
function tipOfStep(step, failure) {
  const { model } = app;
  const reserved = model.reservedAt(step);
  const cached = model.cachedAt(step);
  const block = model.eventBlock[step];
  return [
    model.momentText(step),
    `live ${bytesText(model.live[step])}`,
    Number.isNaN(cached) ? "" : `cached for streams ${bytesText(cached)}`,
    Number.isNaN(reserved) ? "" : `reserved ${bytesText(reserved)}`,
    `fragmentation ${((model.fragmentation[step] / 65535) * 100).toFixed(1)}%`,
    `${model.birth[block] === step ? "allocate" : "free"} #${block}, ${bytesText(model.bytes[block])}, ${model.streamName(model.eventStream[step])}`,
    failure === null ? "" : app.failures.text(failure),
  ].filter(Boolean).join("\n");
}

/** Drag, wheel, click and hover over a plot that has the axis of time. @param {Surface} surface @param {(step: number, event: PointerEvent) => string} words */
function listenOverTime(surface, words) {
  const { over } = surface;
  const { axis } = app;
  /** @type {{ x: number, from: number, to: number, moved: boolean, picks: boolean } | null} */
  let drag = null;
  const valueOf = (/** @type {MouseEvent} */ event) => axis.valueAt(event.offsetX - GUTTER, surface.plotWidth);
  over.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    over.setPointerCapture(event.pointerId);
    drag = { x: event.offsetX, from: axis.from, to: axis.to, moved: false, picks: event.shiftKey };
  });
  over.addEventListener("pointermove", (event) => {
    if (drag && (drag.moved || Math.abs(event.offsetX - drag.x) > 3)) {
      drag.moved = true;
      showTip(null, event);
      if (drag.picks) {
        app.range = [axis.valueAt(drag.x - GUTTER, surface.plotWidth), valueOf(event)];
        app.changed("over");
      } else {
        const by = ((drag.x - event.offsetX) / surface.plotWidth) * (drag.to - drag.from);
        axis.show(drag.from + by, drag.to + by);
        app.viewed();
      }
      return;
    }
    const inside = event.offsetX >= GUTTER && event.offsetX <= surface.width - MARGIN;
    app.hoverStep = inside ? axis.stepAt(valueOf(event)) : null;
    showTip(app.hoverStep === null ? null : words(app.hoverStep, event), event);
    app.changed("over");
  });
  over.addEventListener("pointerup", (event) => {
    if (drag && !drag.moved) app.goTo(axis.stepAt(valueOf(event)));
    if (drag?.picks && app.range) {
      axis.show(Math.min(...app.range), Math.max(...app.range));
      app.viewed();
    }
    app.range = null;
    drag = null;
    app.changed("over");
  });
  over.addEventListener("pointercancel", () => { drag = app.range = null; });
  over.addEventListener("pointerleave", (event) => {
    app.hoverStep = null;
    showTip(null, event);
    app.changed("over");
  });
  over.addEventListener("dblclick", () => {
    axis.all();
    app.viewed();
  });
  over.addEventListener("wheel", (event) => {
    const scroller = surface.box.parentElement;
    const scrolls = scroller?.classList.contains("scroll") && scroller.scrollHeight > scroller.clientHeight + 1;
    if (scrolls && !event.ctrlKey && !event.shiftKey && Math.abs(event.deltaY) > Math.abs(event.deltaX)) return;
    event.preventDefault();
    const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) axis.pan(sideways / surface.plotWidth);
    else axis.zoom(Math.exp(Math.min(1, Math.max(-1, event.deltaY * 0.0022))), valueOf(event));
    app.viewed();
  }, { passive: false });
}

function listenToOverview() {
  const { surface } = app.overview;
  const { over } = surface;
  let held = 0;
  const move = (/** @type {PointerEvent} */ event) => {
    const middle = ((event.offsetX - GUTTER) / surface.plotWidth) * app.axis.end + held;
    const half = (app.axis.to - app.axis.from) / 2;
    app.axis.show(middle - half, middle + half);
    app.viewed();
  };
  over.addEventListener("pointerdown", (event) => {
    over.setPointerCapture(event.pointerId);
    const at = ((event.offsetX - GUTTER) / surface.plotWidth) * app.axis.end;
    held = at >= app.axis.from && at <= app.axis.to ? (app.axis.from + app.axis.to) / 2 - at : 0;
    move(event);
  });
  over.addEventListener("pointermove", (event) => { if (event.buttons & 1) move(event); });
}

/** What lies at a place of the map. @param {number} place */
function tipOfPlace(place) {
  const { map, model } = app;
  const block = map.blockAt(place);
  if (block !== null) {
    return [`block #${block}`, ...app.blockFacts(block).map(([name, value]) => `${name} ${value}`)].join("\n");
  }
  const hole = map.holeAt(place);
  if (hole) return `hole of ${exactText(hole.bytes)}\nat ${model.addressOf(hole.begin)}`;
  return `not reserved at this moment\n${model.addressOf(place)}`;
}

function listenToMap() {
  const { map } = app;
  const { surface } = map;
  const { over } = surface;
  /** @type {{ x: number, y: number, from: number, moved: boolean } | null} */
  let drag = null;
  over.addEventListener("pointerdown", (event) => {
    over.setPointerCapture(event.pointerId);
    drag = { x: event.offsetX, y: event.offsetY, from: map.from, moved: false };
  });
  over.addEventListener("pointermove", (event) => {
    if (drag && (drag.moved || Math.hypot(event.offsetX - drag.x, event.offsetY - drag.y) > 3)) {
      drag.moved = true;
      const rows = (drag.y - event.offsetY) / (ROW_HEIGHT + ROW_GAP);
      map.pan(drag.from - map.from + ((drag.x - event.offsetX) / surface.plotWidth + rows) * map.rowBytes);
      showTip(null, event);
      app.changed("map");
      return;
    }
    const place = map.placeAt(event.offsetX, event.offsetY);
    app.hoverBlock = Number.isNaN(place) ? null : map.blockAt(place);
    showTip(Number.isNaN(place) || place >= app.model.span ? null : tipOfPlace(place), event);
    app.changed("over");
  });
  over.addEventListener("pointerup", (event) => {
    const place = map.placeAt(event.offsetX, event.offsetY);
    if (drag && !drag.moved) app.select(Number.isNaN(place) ? null : map.blockAt(place));
    drag = null;
  });
  over.addEventListener("pointercancel", () => { drag = null; });
  over.addEventListener("pointerleave", (event) => {
    app.hoverBlock = null;
    showTip(null, event);
    app.changed("over");
  });
  over.addEventListener("dblclick", () => {
    map.all();
    app.changed("map");
  });
  over.addEventListener("wheel", (event) => {
    event.preventDefault();
    const place = map.placeAt(event.offsetX, event.offsetY);
    if (event.shiftKey) map.pan(((event.deltaY || event.deltaX) / 200) * map.rowBytes);
    else map.zoom(Math.exp(Math.min(1, Math.max(-1, event.deltaY * 0.0022))), Number.isNaN(place) ? (map.from + map.to) / 2 : place);
    app.changed("map");
  }, { passive: false });
}

/** @param {string} by @param {number} sign */
function zoomBy(by, sign) {
  const { axis } = app;
  const at = axis.valueOf(app.moment);
  const around = at >= axis.from && at <= axis.to ? at : (axis.from + axis.to) / 2;
  if (by === "zoom") axis.zoom(sign > 0 ? 0.5 : 2, around);
  else axis.pan(0.25 * sign);
  app.viewed();
}

/** What each key does. @param {KeyboardEvent} event @returns {boolean} whether it does anything */
function press(event) {
  const { model, axis } = app;
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  const far = event.shiftKey ? Math.max(1, Math.round((axis.stepAt(axis.to) - axis.stepAt(axis.from)) / 100)) : 1;
  /** @type {Record<string, () => void>} */
  const keys = {
    ArrowLeft: () => app.goTo(app.moment - far),
    ArrowRight: () => app.goTo(app.moment + far),
    Home: () => app.goTo(0),
    End: () => app.goTo(model.events - 1),
    p: () => app.goTo(model.peak),
    f: () => app.failureList.walk(1),
    F: () => app.failureList.walk(-1),
    " ": () => app.play(!app.playing),
    "+": () => zoomBy("zoom", 1),
    "=": () => zoomBy("zoom", 1),
    "-": () => zoomBy("zoom", -1),
    "0": () => { axis.all(); app.viewed(); },
    "[": () => zoomBy("pan", -1),
    "]": () => zoomBy("pan", 1),
    x: () => app.turnAxis(!axis.byTime),
    y: () => app.turnHeight(!app.fitHeight),
    l: () => app.turnLanes(app.lanes.by === "stream" ? "thread" : "stream"),
    t: () => byId("theme").click(),
    d: () => devices.choose(devices.shown + 1),
    D: () => devices.choose(devices.shown - 1),
    "/": () => { app.search.input.focus(); app.search.input.select(); },
    "?": () => /** @type {HTMLDialogElement} */ (byId("help")).showModal(),
    Escape: () => { app.search.run(""); app.select(null); },
  };
  const act = Object.hasOwn(keys, event.key) ? keys[event.key] : undefined;
  act?.();
  return act !== undefined;
}

/** Listens to what is drawn of a device: it goes when another is shown. */
function listen() {
  const { model, axis } = app;
  listenOverTime(app.bytes.surface, (step, event) => tipOfStep(step, app.bytes.failureAt(event.offsetX)));
  listenOverTime(app.fragmentation.surface, (step) => tipOfStep(step, null));
  listenOverTime(app.lanes.surface, (step, event) => {
    const lane = app.lanes.at(event.offsetY);
    if (!lane) return tipOfStep(step, null);
    const at = lastAtMost(lane.steps, step);
    return `${lane.name}\n${model.momentText(step)}\nlive ${bytesText(at < 0 ? 0 : lane.live[at])} of at most ${bytesText(lane.most)}\n${plural(lane.calls.length, "call")} in all`;
  });
  byId("lanes-scroll").addEventListener("scroll", () => app.changed("lanes"));
  listenToOverview();
  listenToMap();
  const sizes = app.histogram.surface.over;
  sizes.addEventListener("pointermove", (event) => showTip(app.histogram.tip(event.offsetX), event));
  sizes.addEventListener("pointerleave", (event) => showTip(null, event));
  /** @type {Record<string, () => void>} */
  const buttons = {
    "axis-events": () => app.turnAxis(false),
    "axis-time": () => app.turnAxis(true),
    "fit-height": () => app.turnHeight(!app.fitHeight),
    "zoom-in": () => zoomBy("zoom", 1),
    "zoom-out": () => zoomBy("zoom", -1),
    "zoom-fit": () => { axis.all(); app.viewed(); },
    "lanes-stream": () => app.turnLanes("stream"),
    "lanes-thread": () => app.turnLanes("thread"),
    "to-peak": () => app.goTo(model.peak),
    "sizes-now": () => app.turnSizes(false, app.histogram.countsBlocks),
    "sizes-view": () => app.turnSizes(true, app.histogram.countsBlocks),
    "sizes-bytes": () => app.turnSizes(app.histogram.inView, false),
    "sizes-blocks": () => app.turnSizes(app.histogram.inView, true),
    "map-fit": () => { app.map.all(); app.changed("map"); },
    "block-close": () => app.select(null),
    play: () => app.play(!app.playing),
    "help-open": () => /** @type {HTMLDialogElement} */ (byId("help")).showModal(),
    "tab-now": () => app.showSheet("now"),
    "tab-block": () => app.showSheet("block"),
    "tab-failures": () => app.showSheet("failures"),
    theme: () => app.turnTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"),
  };
  for (const [id, act] of Object.entries(buttons)) byId(id).addEventListener("click", act);
  const scrub = /** @type {HTMLInputElement} */ (byId("scrub"));
  scrub.max = String(Math.max(0, model.events - 1));
  scrub.addEventListener("input", () => app.goTo(Number(scrub.value)));
  sees.disconnect();
  document.querySelectorAll(".plot").forEach((plot) => sees.observe(plot));
}

/** The sizes of the plots. */
const sees = new ResizeObserver(() => app.changed("size"));

/** Listens to what stays. */
function listenForGood() {
  document.addEventListener("keydown", (event) => {
    const at = /** @type {HTMLElement} */ (event.target);
    if (at.closest("dialog") || at === app.search.input || at.tagName === "SELECT") return;
    // What a control of its own does with a key stays so.
    if (at.tagName === "BUTTON" && (event.key === " " || event.key === "Enter")) return;
    if (press(event)) event.preventDefault();
  });
  window.addEventListener("hashchange", () => { if (devices.several && devices.wished() !== devices.shown) offerProbe(show(devices.wished())); });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => app.turnTheme(event.matches ? "dark" : "light"));
}

/** Fills a select, and listens to it. @param {string} id @param {[string, string][]} options @param {string} chosen @param {(by: any) => void} choose */
function offer(id, options, chosen, choose) {
  const select = /** @type {HTMLSelectElement} */ (byId(id));
  select.replaceChildren(...options.map(([value, name]) => Object.assign(document.createElement("option"), { value, textContent: name })));
  select.value = chosen;
  select.addEventListener("change", () => choose(select.value));
  choose(chosen);
}

function offerGroups() {
  const { model } = app;
  const tagged = model.tags.some((tag) => tag !== "");
  /** @type {[string, string][]} */
  const common = app.snapshot ? [] : [["stream", "stream"], ["thread", "thread"]];
  /** @type {[string, string][]} */
  const tags = tagged ? [["tag", "tag"]] : [];
  offer("holders-by", [...tags, ["size", "size"], ...common, ["block", "block"]], tagged ? "tag" : "size", (by) => {
    app.holders.by = by;
    app.changed("holders");
  });
  const first = app.snapshot ? "state" : tagged ? "tag" : "stream";
  offer("map-by", [...(app.snapshot ? /** @type {[string, string][]} */ ([["state", "state"]]) : []), ...tags, ...common, ["size", "size"], ...(app.snapshot ? [] : /** @type {[string, string][]} */ ([["age", "age"]]))], first, (by) => {
    app.map.by = by;
    app.changed("map", "holders", "lanes");
  });
}

/** The devices of the page. */
const devices = new Devices();

/** What is made anew for each device, as it was before anything was written into it. */
const blanks = ["header.bar", "main"].map((selector) => ({ selector, blank: /** @type {Element} */ (document.querySelector(selector)).cloneNode(true) }));

/** How often a device was asked for: only what was asked for last is shown. */
let asked = 0;

/** Shows a device. Returns what tests look at. @param {number} at */
async function show(at) {
  asked += 1;
  const mine = asked;
  devices.mark(at);
  document.body.classList.add("turning");
  const data = await readData(devices.piecesOf(at), devices.several);
  if (mine !== asked) return showing;
  timings.unpacked = performance.now();
  const model = new Model(data);
  const before = /** @type {App | undefined} */ (app);
  const kept = before?.kept();
  if (before) {
    before.play(false);
    tip.hidden = true;
    for (const { selector, blank } of blanks) document.querySelector(selector)?.replaceWith(blank.cloneNode(true));
  }
  new App(model);
  timings.known = performance.now();
  app.sayWhole();
  document.body.classList.remove("loading", "turning");
  if (!app.snapshot) app.lanes.show("stream");
  offerGroups();
  listen();
  app.legendOfBytes();
  app.failureList.write();
  app.showSheet(app.failures.count ? "failures" : "now");
  if (kept) app.take(kept);
  app.stale.add("all");
  app.frame();
  timings.drawn = performance.now();
  return probe();
}

/** Says what is shown, or why it cannot be. @param {Promise<any>} shown */
function offerProbe(shown) {
  showing = shown.catch((error) => {
    document.body.classList.remove("loading", "turning");
    document.body.classList.add("broken");
    byId("veil").textContent = `This page could not be drawn: ${error instanceof Error ? error.message : error}. It needs a browser of 2023 or later.`;
    throw error;
  });
  Object.assign(window, { alluvion: showing });
}

/** The device that was asked for last, once it is there. @type {Promise<any>} */
let showing;

const wished = window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
document.documentElement.dataset.theme = wished;
document.body.classList.toggle("of-one", !devices.several);
devices.write();
listenForGood();
offerProbe(show(devices.wished()));
