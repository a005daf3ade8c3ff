// @ts-check
// What tests ask a page.

/** For tests: what the page holds and what it draws. */
function probe() {
  const { model, axis, map } = app;
  return {
    kind: model.kind,
    events: model.events,
    peak: () => ({ step: model.peak, live: model.live[model.peak] ?? 0, reserved: model.peakReserved() }),
    at: (/** @type {number} */ step) => ({ live: model.live[step], reserved: model.reservedAt(step), fragmentation: model.fragmentation[step] }),
    moment: () => app.moment,
    view: () => ({ from: axis.from, to: axis.to, byTime: axis.byTime }),
    /** What the map shows now: number, address, and length of each block. */
    map: () => map.blocks.map((block) => [block, model.addressOf(model.place[block]), model.extent[block]]),
    /** Where a block is drawn, in pixels of the window. */
    rectangles: (/** @type {number} */ block) => {
      const box = map.surface.over.getBoundingClientRect();
      return map.rectangles(model.place[block], model.extent[block]).map((part) => ({ ...part, x: part.x + box.x, y: part.y + box.y }));
    },
    /** The colour that the map gives a block. */
    colourOf: (/** @type {number} */ block) => map.colours()(block),
    /** Where a point of the curves is drawn, in pixels of the window. */
    point: (/** @type {number} */ step, /** @type {number} */ bytes) => {
      const { surface } = app.bytes;
      const box = surface.over.getBoundingClientRect();
      return { x: box.x + GUTTER + axis.xOf(step, surface.plotWidth), y: box.y + app.bytes.yOf(bytes) };
    },
    /** The colour that a plot has at a point of the window. */
    pixel: (/** @type {string} */ plot, /** @type {number} */ x, /** @type {number} */ y) => {
      const canvas = /** @type {HTMLCanvasElement} */ (document.querySelector(`#plot-${plot} canvas.data`));
      const box = canvas.getBoundingClientRect();
      const [column, row] = [((x - box.x) / box.width) * canvas.width, ((y - box.y) / box.height) * canvas.height];
      // Through a canvas of one pixel: reading from one that is drawn on makes browsers draw it another way.
      const one = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
      const pen = /** @type {CanvasRenderingContext2D} */ (one.getContext("2d", { willReadFrequently: true }));
      pen.drawImage(canvas, Math.floor(column), Math.floor(row), 1, 1, 0, 0, 1, 1);
      return [...pen.getImageData(0, 0, 1, 1).data];
    },
    colour: (/** @type {string} */ name) => app.palette.rgb(name),
    lanes: () => app.lanes.lanes.map((lane) => ({ name: lane.name, most: lane.most, calls: lane.calls.length })),
    holders: () => app.holders.rows,
    bars: () => app.histogram.bars.map((bar, at) => ({ power: app.histogram.first + at, ...bar })),
    hits: () => app.search.hits,
    selected: () => app.selected,
    select: (/** @type {number} */ block) => app.select(block),
    failures: () => Array.from(app.failures.step, (step, at) => ({ step, bytes: app.failures.bytes[at], words: app.failures.text(at) })),
    /** Where each failure that is drawn is crossed, in pixels of the window. */
    crosses: () => {
      const box = app.bytes.surface.over.getBoundingClientRect();
      return app.bytes.marks.map(({ failure, x, to }) => ({ failure, x: box.x + x, y: box.y + to }));
    },
    /** How wide the canvas of each plot is drawn, and where it begins. */
    canvases: () => [...document.querySelectorAll(".plot")].map((plot) => {
      const { x, width } = /** @type {HTMLElement} */ (plot.querySelector("canvas.over")).getBoundingClientRect();
      return { plot: plot.id.slice(5), x, width };
    }),
    frames: () => app.frames,
    devices: () => devices.all.map((device) => device.ordinal),
    device: () => devices.all[devices.shown]?.ordinal ?? null,
    /** What the summary of the shown device says, and the same from its events. */
    summary: () => ({ said: devices.all[devices.shown], live: model.live[model.peak] ?? 0, reserved: model.peakReserved(), failures: app.failures.count, later: model.later, end: model.end }),
    timings: () => timings,
  };
}

/** Milliseconds since the page was asked for. @type {Record<string, number>} */
const timings = {};
