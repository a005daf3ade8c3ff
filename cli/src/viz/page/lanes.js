// @ts-check
// A lane for each stream, or for each thread: what it has allocated and is live, and how busy it is.

const LANE_HEIGHT = 29;
/** Those that held most; a lane more is for all others. */
const MOST_LANES = 40;

/** What happened in one lane. */
class Lane {
  /** @param {string} name @param {number} group its number @param {number} rank among all @param {Uint32Array} steps of the calls that concern its blocks @param {Float64Array} live @param {Uint32Array} calls */
  constructor(name, group, rank, steps, live, calls) {
    this.name = name;
    this.group = group;
    this.rank = rank;
    this.steps = steps;
    this.live = live;
    this.pyramid = new Pyramid(live);
    /** The steps that it called itself. */
    this.calls = calls;
    this.most = 0;
    if (live.length) {
      this.pyramid.look(0, live.length - 1);
      this.most = this.pyramid.high;
    }
  }
}

/** @param {Model} model @param {"stream" | "thread"} by @returns {Lane[]} */
function lanesOf(model, by) {
  const groups = app.groups(by);
  const count = Math.min(groups.count, MOST_LANES + 1);
  const laneOf = (/** @type {number} */ group) => Math.min(groups.rank[group], MOST_LANES);
  const callers = by === "stream" ? model.eventStream : model.eventThread;
  const [sizes, callSizes] = [new Uint32Array(count), new Uint32Array(count)];
  for (let i = 0; i < model.events; i += 1) {
    sizes[laneOf(groups.of[model.eventBlock[i]])] += 1;
    callSizes[laneOf(callers[i])] += 1;
  }
  const steps = Array.from(sizes, (size) => new Uint32Array(size));
  const live = Array.from(sizes, (size) => new Float64Array(size));
  const calls = Array.from(callSizes, (size) => new Uint32Array(size));
  const [at, callsAt, now] = [new Uint32Array(count), new Uint32Array(count), new Float64Array(count)];
  for (let i = 0; i < model.events; i += 1) {
    const block = model.eventBlock[i];
    const lane = laneOf(groups.of[block]);
    now[lane] += model.birth[block] === i ? model.held[block] : -model.held[block];
    steps[lane][at[lane]] = i;
    live[lane][at[lane]] = now[lane];
    at[lane] += 1;
    const caller = laneOf(callers[i]);
    calls[caller][callsAt[caller]] = i;
    callsAt[caller] += 1;
  }
  return steps.map((lane, rank) => {
    const others = rank === MOST_LANES && groups.count > MOST_LANES + 1;
    return new Lane(others ? "others" : groups.name(groups.order[rank]), others ? Infinity : groups.order[rank], rank, lane, live[rank], calls[rank]);
  }).sort((a, b) => a.group - b.group);
}

class Lanes {
  constructor() {
    this.surface = new Surface("plot-lanes");
    /** @type {"stream" | "thread"} */
    this.by = "stream";
    /** @type {Map<string, Lane[]>} */
    this.known = new Map();
  }

  get lanes() {
    let lanes = this.known.get(this.by);
    if (!lanes) {
      lanes = lanesOf(app.model, this.by);
      this.known.set(this.by, lanes);
    }
    return lanes;
  }

  /** @param {"stream" | "thread"} by */
  show(by) {
    this.by = by;
    const height = `${this.lanes.length * LANE_HEIGHT}px`;
    this.surface.box.style.height = height;
    byId("lanes-scroll").style.maxHeight = height;
  }

  draw() {
    const { surface, lanes } = this;
    const { pen, plotWidth, ratio } = surface;
    const { palette, axis } = app;
    surface.clear(pen);
    drawTicks(surface, false, surface.height);
    const scroller = byId("lanes-scroll");
    // A colour is one group of one kind: that which the map shows.
    const coloured = app.map.by === this.by;
    const width = Math.max(1, Math.round(plotWidth * ratio));
    const { from, to } = axis.columns(width);
    const px = 1 / ratio;
    lanes.forEach((lane, row) => {
      const top = row * LANE_HEIGHT;
      if (top + LANE_HEIGHT < scroller.scrollTop || top > scroller.scrollTop + scroller.clientHeight) return;
      const bottom = top + LANE_HEIGHT - 8;
      pen.fillStyle = palette.of("line");
      pen.fillRect(0, top + LANE_HEIGHT - 1, surface.width, 1);
      label(pen, lane.name, 2, top + 10, palette.of("ink"), "left");
      label(pen, bytesText(lane.most), 2, top + 21, palette.of("faint"), "left");
      const colour = palette.of(coloured ? palette.group(lane.rank) : "live");
      const most = lane.most || 1;
      const [low, high] = [new Float64Array(width).fill(bottom), new Float64Array(width).fill(bottom)];
      let [at, call] = [lastAtMost(lane.steps, from[0]), lastAtMost(lane.calls, from[0] - 1)];
      // Calls are drawn in runs of equal density, in four steps: few pixels differ from their neighbours.
      let [run, since] = [0, 0];
      const end = (/** @type {number} */ x, /** @type {number} */ next) => {
        if (run > 0) {
          pen.fillStyle = palette.of("soft");
          pen.globalAlpha = 0.2 + 0.2 * run;
          pen.fillRect(GUTTER + since * px, bottom + 2, (x - since) * px, 3);
          pen.globalAlpha = 1;
        }
        [run, since] = [next, x];
      };
      for (let x = axis.firstColumn(width); x < width; x += 1) {
        const last = advance(lane.steps, at, to[x]);
        if (last >= 0) {
          lane.pyramid.look(Math.max(0, at), last);
          low[x] = bottom - (lane.pyramid.low / most) * (LANE_HEIGHT - 12);
          high[x] = bottom - (lane.pyramid.high / most) * (LANE_HEIGHT - 12);
        }
        const called = advance(lane.calls, call, to[x]);
        // Of the events under this pixel, how many are this lane's.
        const density = called > call ? Math.ceil((4 * (called - call)) / (to[x] - from[x] + 1)) : 0;
        if (Math.min(4, density) !== run) end(x, Math.min(4, density));
        at = last;
        call = called;
      }
      end(width, 0);
      fillUnder(pen, high, px, bottom, colour, 0.6);
      fillUnder(pen, low, px, bottom, colour, 1);
    });
    surface.data.setAttribute("aria-label", `Live bytes by ${this.by}: ${lanes.slice(0, 8).map((lane) => `${lane.name} at most ${bytesText(lane.most)}`).join(", ")}.`);
  }

  /** @param {number} y in CSS pixels */
  at(y) {
    return this.lanes[Math.floor(y / LANE_HEIGHT)];
  }
}

/** The last place whose step is `step` or less, looking onwards from `at`. @param {Uint32Array} steps @param {number} at @param {number} step */
function advance(steps, at, step) {
  let stride = 1;
  while (at + stride < steps.length && steps[at + stride] <= step) {
    at += stride;
    stride *= 2;
  }
  while (stride >= 1) {
    if (at + stride < steps.length && steps[at + stride] <= step) at += stride;
    stride = Math.floor(stride / 2);
  }
  return at;
}
