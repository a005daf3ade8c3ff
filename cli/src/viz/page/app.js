// @ts-check
// The page as a whole: what is in view, which moment it is, and what has to be drawn again.

/** @type {App} */
let app;

/** @param {string} id */
const byId = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

class App {
  /** @param {Model} model */
  constructor(model) {
    app = this;
    this.model = model;
    this.snapshot = model.kind === "snapshot";
    this.palette = new Palette();
    this.axis = new Axis(model);
    /** The event after which everything is shown. */
    this.moment = model.peak;
    /** @type {number | null} */
    this.hoverStep = null;
    /** @type {number | null} */
    this.hoverBlock = null;
    /** @type {number | null} */
    this.selected = null;
    /** The part of the axis that is being dragged over. @type {[number, number] | null} */
    this.range = null;
    this.fitHeight = false;
    this.playing = false;
    /** @type {Map<string, Groups>} */
    this.grouped = new Map();
    this.failures = model.failures;
    this.failureList = new FailureList();
    /** Which of the sheets with details is on top. @type {"now" | "block" | "failures"} */
    this.sheet = "now";
    this.search = new Search();
    this.bytes = new BytesChart();
    this.overview = new Overview();
    this.fragmentation = new FragmentationChart();
    this.lanes = new Lanes();
    this.map = new AddressMap();
    this.holders = new Holders();
    this.histogram = new Histogram();
    /** What is to be drawn again: view, moment, map, over. @type {Set<string>} */
    this.stale = new Set();
    this.asked = false;
    /** Milliseconds that the last frames took. @type {number[]} */
    this.frames = [];
    /** The version of the axis that is drawn. */
    this.seenVersion = this.axis.version;
    this.map.all();
  }

  /** @param {"stream" | "thread" | "tag"} by */
  groups(by) {
    let groups = this.grouped.get(by);
    if (!groups) this.grouped.set(by, (groups = new Groups(this.model, by)));
    return groups;
  }

  /** @param {string[]} what */
  changed(...what) {
    for (const each of what) this.stale.add(each);
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      // Another device may be shown by now, in the same place.
      if (app === this) this.frame();
    });
  }

  frame() {
    const since = performance.now();
    const { stale } = this;
    this.stale = new Set();
    const all = stale.has("all");
    const fitted = new Set([this.bytes, this.overview, this.fragmentation, this.lanes, this.map, this.histogram].filter((part) => part.surface.fit()));
    const again = (/** @type {any} */ part, /** @type {string[]} */ ...causes) => all || fitted.has(part) || causes.some((cause) => stale.has(cause));
    if (!this.snapshot) {
      for (const part of [this.bytes, this.fragmentation]) if (again(part, "view")) part.draw();
      if (again(this.lanes, "view", "lanes")) this.lanes.draw();
      if (again(this.overview, "axis")) this.overview.draw();
      drawCursors(this.bytes.surface, true);
      drawCursors(this.fragmentation.surface, false);
      drawCursors(this.lanes.surface, false);
      this.overview.drawOver();
    }
    if (again(this.map, "moment", "map")) {
      this.map.draw();
      this.legendOfMap();
    }
    if (all || stale.has("moment") || stale.has("holders")) {
      this.holders.draw();
      this.sayNow();
    }
    if (again(this.histogram, "moment", "sizes") || (stale.has("view") && this.histogram.inView)) this.histogram.draw();
    this.map.drawOver();
    if (all || stale.has("moment") || stale.has("block")) this.sayBlock();
    this.frames.push(performance.now() - since);
    if (this.frames.length > 600) this.frames.shift();
  }

  /** @param {number} step */
  goTo(step) {
    const last = Math.max(0, this.model.events - 1);
    const next = Math.min(last, Math.max(0, Math.round(step)));
    if (next === this.moment) return;
    this.moment = next;
    this.axis.reveal(next);
    this.hoverBlock = null;
    this.changed("moment", ...(this.axis.version === this.seenVersion ? [] : ["view"]));
    this.seenVersion = this.axis.version;
  }

  viewed() {
    this.seenVersion = this.axis.version;
    this.changed("view");
  }

  /** @param {"now" | "block" | "failures"} sheet */
  showSheet(sheet) {
    this.sheet = sheet;
    byId("tab-block").hidden = this.selected === null;
    byId("tab-failures").hidden = this.failures.count === 0;
    for (const name of ["now", "block", "failures"]) {
      byId(`tab-${name}`).setAttribute("aria-selected", String(name === sheet));
      byId(name).classList.toggle("under", name !== sheet);
    }
    byId("to-peak").hidden = sheet !== "now";
    byId("block-close").hidden = sheet !== "block";
  }

  /** @param {number | null} block */
  select(block) {
    this.selected = block;
    if (block !== null) this.showSheet("block");
    else this.showSheet(this.sheet === "block" ? "now" : this.sheet);
    this.changed("over", "block");
  }

  /** @param {boolean} byTime */
  turnAxis(byTime) {
    if (byTime !== this.axis.byTime) this.axis.turn();
    byId("axis-events").setAttribute("aria-pressed", String(!byTime));
    byId("axis-time").setAttribute("aria-pressed", String(byTime));
    this.changed("axis");
    this.viewed();
  }

  /** @param {boolean} fit */
  turnHeight(fit) {
    this.fitHeight = fit;
    byId("fit-height").setAttribute("aria-pressed", String(fit));
    this.viewed();
  }

  /** @param {"stream" | "thread"} by */
  turnLanes(by) {
    this.lanes.show(by);
    byId("lanes-stream").setAttribute("aria-pressed", String(by === "stream"));
    byId("lanes-thread").setAttribute("aria-pressed", String(by === "thread"));
    this.viewed();
  }

  /** @param {boolean} inView @param {boolean} countsBlocks */
  turnSizes(inView, countsBlocks) {
    this.histogram.inView = inView;
    this.histogram.countsBlocks = countsBlocks;
    for (const [id, on] of /** @type {[string, boolean][]} */ ([["sizes-now", !inView], ["sizes-view", inView], ["sizes-bytes", !countsBlocks], ["sizes-blocks", countsBlocks]])) {
      byId(id).setAttribute("aria-pressed", String(on));
    }
    this.changed("sizes");
  }

  /** What the page of another device takes over. @returns {Kept} */
  kept() {
    const { axis, fitHeight, model } = this;
    const { byTime, from, to } = axis;
    const { inView, countsBlocks } = this.histogram;
    return { byTime, from, to, time: model.time[this.moment] ?? 0, fitHeight, lanes: this.lanes.by, inView, countsBlocks, search: this.search.input.value };
  }

  /** Takes over how another device was looked at: by the clock, the same time and moment. @param {Kept} kept */
  take(kept) {
    if (kept.lanes !== this.lanes.by) this.turnLanes(kept.lanes);
    if (kept.fitHeight) this.turnHeight(true);
    this.turnSizes(kept.inView, kept.countsBlocks);
    if (kept.byTime) {
      this.turnAxis(true);
      this.moment = this.axis.stepAt(kept.time);
      this.axis.show(kept.from, kept.to);
    }
    if (kept.search) this.search.run(kept.search);
    this.viewed();
  }

  /** @param {"light" | "dark"} theme */
  turnTheme(theme) {
    document.documentElement.dataset.theme = theme;
    this.palette.forget();
    this.legendOfBytes();
    this.changed("all");
  }

  /** @param {boolean} play */
  play(play) {
    if (this.snapshot || play === this.playing) return;
    this.playing = play;
    const button = byId("play");
    button.setAttribute("aria-label", play ? "Stop" : "Play");
    button.querySelector("path")?.setAttribute("d", play ? "M2 1.5h3v9h-3zM7 1.5h3v9h-3z" : "M2.5 1v10l8-5z");
    if (!play) return;
    const { axis } = this;
    if (axis.valueOf(this.moment) >= axis.to - (axis.to - axis.from) * 0.01) this.goTo(axis.stepAt(axis.from));
    let before = performance.now();
    let at = axis.valueOf(this.moment);
    const step = (/** @type {number} */ now) => {
      if (!this.playing || app !== this) return;
      // What is in view lasts fifteen seconds.
      at += ((axis.to - axis.from) * (now - before)) / 15000;
      before = now;
      this.goTo(Math.max(this.moment, axis.stepAt(at)));
      if (at >= axis.to) this.play(false);
      else requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }

  legendOfBytes() {
    const { model } = this;
    const entries = /** @type {[string, string, boolean][]} */ ([["live", "live", false]]);
    if (model.sample.step.length) entries.push(["cached", "cached for streams", false]);
    if (model.reserved.step.length) entries.push(["held", model.sample.step.length ? "free in the core" : "cached: reserved and not live", false], ["reserved", "reserved", true]);
    const drawn = entries.map(([colour, name, line]) => legendEntry(this.palette.of(colour), name, line));
    if (this.failures.count) {
      const entry = legendEntry("none", "failed", false);
      entry.title = "Allocations that failed: from what was live to what was wanted";
      entry.querySelector("i")?.classList.add("cross");
      drawn.push(entry);
    }
    byId("legend-bytes").replaceChildren(...drawn);
  }

  legendOfMap() {
    const { map, palette, model } = this;
    const entries = [];
    if (map.by === "size" || map.by === "age") {
      const [low, high] = map.by === "size" ? ["256 B", "4 GiB"] : ["old", "new"];
      const ramp = legendEntry(`linear-gradient(to right, ${[0, 0.25, 0.5, 0.75, 1].map((share) => `rgb(${rampColour(share)})`)})`, high, false);
      ramp.prepend(low);
      ramp.querySelector("i")?.classList.add("ramp");
      entries.push(ramp);
    } else if (map.by === "state") {
      for (const [colour, name] of [["live", "live"], ["cached", "cached for a stream"], ["pending", "pending on a stream"]]) {
        entries.push(legendEntry(palette.of(colour), name, false));
      }
    } else {
      const groups = this.groups(map.by);
      for (const group of groups.coloured) entries.push(legendEntry(palette.of(palette.group(groups.rank[group])), groups.name(group), false));
      if (groups.count > COLOURS) entries.push(legendEntry(palette.of("other"), "others", false));
    }
    entries.push(legendEntry(palette.of("hole"), model.kind === "recorded" ? "hole" : "hole, reserved", false));
    byId("legend-map").replaceChildren(...entries);
  }

  /** The figures of the moment. */
  sayNow() {
    const { model, map, moment } = this;
    if (this.snapshot) {
      pairs(byId("now-facts"), this.snapshotFacts());
      return;
    }
    const reserved = model.reservedAt(moment);
    const live = model.live[moment] ?? 0;
    const block = model.eventBlock[moment];
    /** @type {[string, string][]} */
    const facts = [["live", bytesText(live)], ["live blocks", countText(map.held.length)]];
    if (!Number.isNaN(reserved)) facts.push(["reserved", bytesText(reserved)], ["reserved, not live", bytesText(Math.max(0, reserved - live))]);
    const cached = model.cachedAt(moment);
    if (!Number.isNaN(cached)) facts.push(["cached for streams", bytesText(cached)]);
    if (model.events) {
      facts.push(["fragmentation", `${((model.fragmentation[moment] / 65535) * 100).toFixed(1)}%`]);
      facts.push(["event", `${countText(moment + 1)} of ${countText(model.events)}`]);
      facts.push(["time", `${durationText(model.time[moment])} · ${clockText(model.heading.first_microseconds + model.time[moment])}`]);
      facts.push(["call", `${model.birth[block] === moment ? "allocate" : "free"} #${block}, ${bytesText(model.bytes[block])}`]);
      facts.push(["by", `${model.streamName(model.eventStream[moment])}, ${model.threadName(model.eventThread[moment])}`]);
    }
    pairs(byId("now-facts"), facts);
    const scrub = /** @type {HTMLInputElement} */ (byId("scrub"));
    scrub.value = String(moment);
    const words = `${model.momentText(moment)} · ${bytesText(live)} live`;
    scrub.setAttribute("aria-valuetext", words);
    byId("scrub-text").textContent = words;
  }

  /** @returns {[string, string][]} */
  snapshotFacts() {
    const { model } = this;
    const [sums, counts] = [new Float64Array(4), new Float64Array(4)];
    for (let block = 0; block < model.blocks; block += 1) {
      sums[model.state[block]] += model.bytes[block];
      counts[model.state[block]] += 1;
    }
    const { status } = model.heading;
    return [
      ...["live", "cached for streams", "pending on a stream", "free for anybody"].map((name, state) => /** @type {[string, string]} */ ([name, `${bytesText(sums[state])} · ${plural(counts[state], "block")}`])),
      ["largest free piece", bytesText(status.largest_free_bytes)],
      ["from caches", `${countText(status.hits)} of ${countText(status.hits + status.misses)} allocations`],
      ["taken from other streams", plural(status.steals, "block")],
      ["calls of the upstream", countText(status.upstream_calls)],
      ["memory of the host", bytesText(status.metadata_bytes)],
      ...this.pageFacts(),
    ];
  }

  /** Of a pool of pages, and of what sleeps in it: where there is nothing to say, no rows. @returns {[string, string][]} */
  pageFacts() {
    const { status } = this.model.heading;
    /** @type {[string, string][]} */
    const facts = [];
    if (status.pages) facts.push(["mapped", plural(status.pages, "page")]);
    if (status.moves) facts.push(["moved", `${plural(status.moves, "page")} · ${bytesText(status.moved_bytes)}`]);
    if (status.asleep_bytes) facts.push(["asleep", bytesText(status.asleep_bytes)]);
    return facts;
  }

  /** @returns {[string, string][]} */
  snapshotFigures() {
    const { heading } = this.model;
    const { status } = heading;
    const free = status.free_bytes;
    return [
      ["Live", bytesText(status.live_bytes)],
      ["Cached for streams", bytesText(status.cached_bytes)],
      ["Free in the core", bytesText(free)],
      ["Reserved", bytesText(status.reserved_bytes)],
      ["Reserved peak", bytesText(status.peak_reserved_bytes)],
      ["Reserved / live", status.live_bytes ? (status.reserved_bytes / status.live_bytes).toFixed(2) : "–"],
      ["Fragmentation", free ? `${((1 - status.largest_free_bytes / free) * 100).toFixed(1)}%` : "–"],
      ["Segments", countText(this.model.segment.place.length)],
    ];
  }

  sayBlock() {
    const { model, selected } = this;
    if (selected === null) return;
    byId("tab-block").textContent = `Block #${selected}`;
    const death = model.death[selected];
    pairs(byId("block-facts"), this.blockFacts(selected), {
      allocated: { id: "block-birth", act: () => this.goTo(model.birth[selected]) },
      ...(death === NEVER ? {} : { freed: { id: "block-death", act: () => this.goTo(death) } }),
    });
  }

  /** @param {number} block @returns {[string, string][]} */
  blockFacts(block) {
    const { model } = this;
    const death = model.death[block];
    /** @type {[string, string][]} */
    const facts = [["address", model.addressOf(model.place[block])], ["size", exactText(model.bytes[block])]];
    if (model.tags[model.tag[block]]) facts.push(["tag", model.tagName(model.tag[block])]);
    if (this.snapshot) {
      facts.push(["state", ["live", "cached for a stream", "pending on a stream", "free"][model.state[block]]]);
      const stream = model.streams[model.blockStream[block]];
      if (stream) facts.push(["stream", stream]);
      return facts;
    }
    const stream = model.blockStream[block];
    facts.push(["stream", `${stream} (${model.streams[stream]})`], ["thread", model.threads[model.blockThread[block]]]);
    facts.push(["allocated", model.momentText(model.birth[block])]);
    facts.push(["freed", death === NEVER ? "never in this log" : model.momentText(death)]);
    if (death !== NEVER) {
      facts.push(["lived", durationText(model.time[death] - model.time[model.birth[block]])]);
      if (model.eventStream[death] !== stream) facts.push(["freed on", model.streamName(model.eventStream[death])]);
    }
    return facts;
  }

  /** The figures of the whole, and what the page says of itself. */
  sayWhole() {
    const { model } = this;
    const { heading } = model;
    document.body.classList.toggle("snapshot", this.snapshot);
    byId("title").textContent = heading.title;
    byId("title").title = heading.title;
    byId("kind").textContent = { recorded: "as recorded", replayed: "replayed", snapshot: "snapshot" }[model.kind];
    byId("how").textContent = {
      recorded: heading.knows_reserved
        ? "Addresses and reserved bytes are those of the log."
        : "Addresses are those of the log. It does not say what was reserved.",
      replayed: `The log does not say what was reserved: addresses, cached and reserved bytes are those of a replay through ${heading.resource} of a simulated GPU.`,
      snapshot: `Every block of a suballocator at one moment, ${dateText(heading.unix_microseconds ?? 0)}, on ${heading.driver === "sim" ? "a simulated GPU" : `GPU ${heading.ordinal}`}.`,
    }[model.kind];
    byId("how").title = byId("how").textContent ?? "";
    byId("notes").hidden = heading.notes.length === 0;
    byId("notes").replaceChildren(...heading.notes.map((/** @type {string} */ note) => Object.assign(document.createElement("p"), { textContent: note })));
    const [live, reserved] = [model.live[model.peak] ?? 0, model.peakReserved()];
    const facts = this.snapshot ? this.snapshotFigures() : [["Live peak", bytesText(live)]];
    if (!this.snapshot) {
      if (reserved) {
        facts.push(["Reserved peak", bytesText(reserved)]);
        facts.push(["Reserved / live", live ? (reserved / live).toFixed(2) : "–"]);
      }
      const left = model.live[model.events - 1] ?? 0;
      facts.push(["Events", countText(model.events)], ["Blocks", countText(model.blocks)], ["Streams", countText(model.streams.length)], ["Threads", countText(model.threads.length)]);
      facts.push(["Duration", durationText(Math.max(0, model.duration - model.later))], ["Live at the end", bytesText(left)]);
      if (this.failures.count) facts.push(["Failed", countText(this.failures.count)]);
    }
    byId("facts").replaceChildren(...facts.map(([name, value]) => {
      const [box, term, text] = ["div", "dt", "dd"].map((tag) => document.createElement(tag));
      term.textContent = name;
      text.textContent = value;
      if (name === "Failed") text.className = "failed";
      box.append(term, text);
      return box;
    }));
    const nothing = !this.snapshot && model.events === 0;
    const empty = byId("time-empty");
    empty.hidden = !this.snapshot && !nothing;
    const words = nothing
      ? ["Nothing was allocated", this.failures.count ? `The log has ${plural(this.failures.count, "allocation")}, and ${this.failures.count === 1 ? "it" : "each of them"} failed.` : "The log has a heading and no allocation, so there is nothing to draw."]
      : ["One moment has no curve", "A snapshot shows every block at one moment. For curves, lanes and fragmentation over time, draw a log: alluvion viz trace.csv.gz -o out.html"];
    const strong = document.createElement("strong");
    strong.textContent = words[0];
    empty.replaceChildren(strong, words[1]);
    if (nothing) document.body.classList.add("snapshot");
  }
}

/** @param {string} colour @param {string} name @param {boolean} line */
function legendEntry(colour, name, line) {
  const entry = document.createElement("span");
  const swatch = document.createElement("i");
  if (line) {
    swatch.className = "line";
    swatch.style.borderColor = colour;
  } else {
    swatch.style.background = colour;
  }
  entry.append(swatch, name);
  return entry;
}

/**
 * Names and values; some values do something.
 * @param {HTMLElement} list @param {[string, string][]} facts @param {Record<string, { id: string, act: () => void }>} acts
 */
function pairs(list, facts, acts = {}) {
  list.replaceChildren(...facts.flatMap(([name, value]) => {
    const [term, text] = [document.createElement("dt"), document.createElement("dd")];
    term.textContent = name;
    const act = acts[name];
    if (act) {
      const button = Object.assign(document.createElement("button"), { type: "button", id: act.id, className: "link", textContent: value, title: "Go there" });
      button.addEventListener("click", act.act);
      text.append(button);
    } else {
      text.textContent = value;
    }
    if (value.startsWith("0x")) text.className = "mono";
    return [term, text];
  }));
}
