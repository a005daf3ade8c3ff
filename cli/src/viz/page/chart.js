// @ts-check
// Curves over time.

/** The font of labels: that of the page. Asked for once, because asking makes the browser lay the page out. */
const LABELS = `11px ${getComputedStyle(document.body).fontFamily}`;

/** Two canvases above each other: what is drawn anew when the view changes, and what follows the mouse. */
class Surface {
  /** @param {string} id */
  constructor(id) {
    this.box = /** @type {HTMLElement} */ (document.getElementById(id));
    const [data, over] = this.box.querySelectorAll("canvas");
    this.data = data;
    this.over = over;
    this.pen = /** @type {CanvasRenderingContext2D} */ (data.getContext("2d", { alpha: true }));
    this.overPen = /** @type {CanvasRenderingContext2D} */ (over.getContext("2d"));
    data.setAttribute("role", "img");
    over.setAttribute("aria-hidden", "true");
    this.width = 0;
    this.height = 0;
    this.ratio = 1;
  }

  /** Fits the canvases to their box. Returns whether that changed anything. */
  fit() {
    const ratio = Math.min(3, window.devicePixelRatio || 1);
    const { clientWidth, clientHeight } = this.box;
    if (clientWidth === this.width && clientHeight === this.height && ratio === this.ratio) return false;
    this.width = clientWidth;
    this.height = clientHeight;
    this.ratio = ratio;
    for (const canvas of [this.data, this.over]) {
      canvas.width = Math.max(1, Math.round(clientWidth * ratio));
      canvas.height = Math.max(1, Math.round(clientHeight * ratio));
    }
    return true;
  }

  /** @param {CanvasRenderingContext2D} pen */
  clear(pen) {
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, this.data.width, this.data.height);
    pen.scale(this.ratio, this.ratio);
    pen.font = LABELS;
    pen.textBaseline = "middle";
  }

  /** Of the part between gutter and margin, in CSS pixels. */
  get plotWidth() {
    return Math.max(1, this.width - GUTTER - MARGIN);
  }
}

/** @param {CanvasRenderingContext2D} pen @param {string} text @param {number} x @param {number} y @param {string} colour @param {CanvasTextAlign} align */
function label(pen, text, x, y, colour, align) {
  pen.fillStyle = colour;
  pen.textAlign = align;
  pen.fillText(text, x, y);
}

/** Vertical lines at the round points of the axis, with names if there is room under `bottom`. @param {Surface} surface @param {boolean} named @param {number} bottom */
function drawTicks(surface, named, bottom) {
  const { pen, plotWidth } = surface;
  for (const { at, name } of app.axis.ticks(plotWidth)) {
    const x = Math.round(GUTTER + ((at - app.axis.from) / (app.axis.to - app.axis.from)) * plotWidth) + 0.5;
    pen.strokeStyle = app.palette.of("grid");
    pen.beginPath();
    pen.moveTo(x, 0);
    pen.lineTo(x, bottom);
    pen.stroke();
    if (named && x > GUTTER + 14 && x < surface.width - 22) label(pen, name, x, bottom + 10, app.palette.of("soft"), "center");
  }
}

/**
 * Fills what lies under a curve, a level for each device pixel, as one shape: a rectangle for each pixel takes ten times as long.
 * @param {CanvasRenderingContext2D} pen @param {Float64Array} levels @param {number} px @param {number} bottom @param {string} colour @param {number} opacity
 */
function fillUnder(pen, levels, px, bottom, colour, opacity) {
  pen.beginPath();
  pen.moveTo(GUTTER, bottom);
  let before = bottom;
  for (let x = 0; x < levels.length; x += 1) {
    const level = levels[x];
    if (level === before) continue;
    pen.lineTo(GUTTER + x * px, before);
    pen.lineTo(GUTTER + x * px, level);
    before = level;
  }
  pen.lineTo(GUTTER + levels.length * px, before);
  pen.lineTo(GUTTER + levels.length * px, bottom);
  pen.fillStyle = colour;
  pen.globalAlpha = opacity;
  pen.fill();
  pen.globalAlpha = 1;
}

/** Live, cached and reserved bytes. */
class BytesChart {
  constructor() {
    this.surface = new Surface("plot-bytes");
    this.low = 0;
    this.high = 1;
    /** The failures that are drawn. @type {FailureMark[]} */
    this.marks = [];
  }

  get bottom() {
    return this.surface.height - 20;
  }

  /** The failure that is drawn near a point of the plot. @param {number} x @returns {number | null} */
  failureAt(x) {
    let [found, least] = [/** @type {number | null} */ (null), 5];
    for (const mark of this.marks) {
      if (Math.abs(mark.x - x) < least) [found, least] = [mark.failure, Math.abs(mark.x - x)];
    }
    return found;
  }

  /** @param {number} bytes */
  yOf(bytes) {
    return this.bottom - ((bytes - this.low) / (this.high - this.low)) * (this.bottom - 6);
  }

  /** What is drawn of some events: least and most live, most live and cached, most reserved. What nobody knows is NaN. @param {Float64Array} out @param {number} from @param {number} to */
  static look(out, from, to) {
    const { model } = app;
    model.livePyramid.look(from, to);
    out[0] = model.livePyramid.low;
    out[1] = model.livePyramid.high;
    out[2] = NaN;
    out[3] = NaN;
    const [first, last] = [lastAtMost(model.reserved.step, from), lastAtMost(model.reserved.step, to)];
    if (last >= 0) {
      model.reservedPyramid.look(Math.max(0, first), last);
      out[3] = model.reservedPyramid.high;
    }
    const [early, late] = [lastAtMost(model.sample.step, from), lastAtMost(model.sample.step, to)];
    if (late > early) {
      model.takenPyramid.look(early + 1, late);
      out[2] = model.takenPyramid.high;
    } else if (late >= 0) {
      out[2] = out[1] + model.sample.cached[late];
    }
  }

  scale() {
    const { model, axis } = app;
    const [first, last] = [axis.stepAt(axis.from), axis.stepAt(axis.to)];
    const seen = new Float64Array(4);
    BytesChart.look(seen, app.fitHeight ? first : 0, app.fitHeight ? last : Math.max(0, model.events - 1));
    const most = Math.max(seen[1], Number.isNaN(seen[3]) ? 0 : seen[3], 1);
    this.low = app.fitHeight ? Math.max(0, seen[0] - (most - seen[0]) * 0.08) : 0;
    this.high = this.low + (most - this.low) * 1.04;
  }

  draw() {
    const { surface } = this;
    const { pen, plotWidth, ratio } = surface;
    const { axis, palette, model } = app;
    surface.clear(pen);
    this.scale();
    const bottom = this.bottom;
    drawTicks(surface, true, bottom);
    const step = roundBytes(this.high - this.low, Math.max(2, bottom / 24));
    for (let bytes = Math.ceil(this.low / step) * step; bytes <= this.high; bytes += step) {
      const y = Math.round(this.yOf(bytes)) + 0.5;
      pen.strokeStyle = palette.of("grid");
      pen.beginPath();
      pen.moveTo(GUTTER, y);
      pen.lineTo(GUTTER + plotWidth, y);
      pen.stroke();
      label(pen, roundText(bytes), GUTTER - 8, y, palette.of("soft"), "right");
    }
    const width = Math.max(1, Math.round(plotWidth * ratio));
    const { from, to } = axis.columns(width);
    const seen = new Float64Array(4);
    const px = 1 / ratio;
    const rise = (/** @type {number} */ bytes) => Math.min(bottom, this.yOf(bytes));
    // From the back to the front. What is not known has no height.
    const [reserved, cached, high, low] = [0, 1, 2, 3].map(() => new Float64Array(width).fill(bottom));
    for (let x = axis.firstColumn(width); x < width; x += 1) {
      BytesChart.look(seen, from[x], to[x]);
      low[x] = rise(seen[0]);
      high[x] = rise(seen[1]);
      if (!Number.isNaN(seen[3])) reserved[x] = rise(seen[3]);
      if (!Number.isNaN(seen[2])) cached[x] = Math.max(reserved[x], rise(seen[2]));
    }
    fillUnder(pen, reserved, px, bottom, palette.of("held"), 1);
    fillUnder(pen, cached, px, bottom, palette.of("cached"), 1);
    fillUnder(pen, high, px, bottom, palette.of("live"), 0.62);
    fillUnder(pen, low, px, bottom, palette.of("live"), 1);
    if (model.reserved.step.length) {
      pen.beginPath();
      for (let x = 0; x < width; x += 1) {
        if (x > 0 && reserved[x] !== reserved[x - 1]) pen.lineTo(GUTTER + x * px, reserved[x - 1]);
        if (x === 0 || reserved[x] !== reserved[x - 1]) pen.lineTo(GUTTER + x * px, reserved[x]);
      }
      pen.lineTo(GUTTER + plotWidth, reserved[width - 1]);
      pen.strokeStyle = palette.of("reserved");
      pen.lineWidth = 1.25;
      pen.stroke();
      pen.lineWidth = 1;
    }
    pen.strokeStyle = palette.of("line");
    pen.strokeRect(GUTTER - 0.5, bottom + 0.5, plotWidth + 1, 0);
    this.marks = drawFailures(this);
    const most = model.peakReserved();
    const failed = app.failures.count ? `; ${plural(app.failures.count, "failed allocation")}` : "";
    surface.data.setAttribute("aria-label", `Bytes over time. Live peak ${bytesText(model.live[model.peak] ?? 0)} at ${model.momentText(model.peak)}${most ? `; reserved peak ${bytesText(most)}` : ""}${failed}.`);
  }
}

/** The whole, small, with what is in view marked. */
class Overview {
  constructor() {
    this.surface = new Surface("plot-overview");
  }

  draw() {
    const { surface } = this;
    const { pen, plotWidth, ratio, height } = surface;
    const { model, palette, axis } = app;
    surface.clear(pen);
    label(pen, "All", GUTTER - 8, height / 2, palette.of("soft"), "right");
    pen.fillStyle = palette.of("ground");
    pen.fillRect(GUTTER, 2, plotWidth, height - 4);
    const width = Math.max(1, Math.round(plotWidth * ratio));
    const most = model.live[model.peak] || 1;
    const levels = new Float64Array(width).fill(height - 2);
    const end = axis.end;
    const before = axis.byTime ? Math.floor(((model.time[0] ?? 0) / end) * width) : 0;
    for (let x = before; x < width; x += 1) {
      const first = axis.stepAt((x / width) * end);
      const last = Math.max(first, axis.stepAt(((x + 1) / width) * end - 1e-9));
      model.livePyramid.look(first, last);
      levels[x] = height - 2 - (model.livePyramid.high / most) * (height - 6);
    }
    fillUnder(pen, levels, 1 / ratio, height - 2, palette.of("other"), 1);
    surface.data.setAttribute("aria-label", "Live bytes of the whole log; the frame is what is in view.");
  }

  drawOver() {
    const { surface } = this;
    const { overPen: pen, plotWidth, height } = surface;
    const { axis, palette } = app;
    surface.clear(pen);
    const left = GUTTER + (axis.from / axis.end) * plotWidth;
    const right = GUTTER + (axis.to / axis.end) * plotWidth;
    pen.fillStyle = palette.of("panel");
    pen.globalAlpha = 0.66;
    pen.fillRect(GUTTER, 1, left - GUTTER, height - 2);
    pen.fillRect(right, 1, GUTTER + plotWidth - right, height - 2);
    pen.globalAlpha = 1;
    pen.strokeStyle = palette.of("accent");
    pen.lineWidth = 1.5;
    pen.strokeRect(left, 1.5, Math.max(3, right - left), height - 3);
    pen.lineWidth = 1;
    const x = GUTTER + (axis.valueOf(app.moment) / axis.end) * plotWidth;
    pen.fillStyle = palette.of("mark");
    pen.fillRect(x - 0.75, 1, 1.5, height - 2);
  }
}

class FragmentationChart {
  constructor() {
    this.surface = new Surface("plot-fragmentation");
  }

  /** @param {number} share */
  yOf(share) {
    const bottom = this.surface.height - 3;
    return bottom - share * (bottom - 5);
  }

  draw() {
    const { surface } = this;
    const { pen, plotWidth, ratio } = surface;
    const { model, palette, axis } = app;
    surface.clear(pen);
    const bottom = surface.height - 3;
    drawTicks(surface, false, bottom);
    for (const share of [0, 0.5, 1]) {
      const y = Math.round(this.yOf(share)) + 0.5;
      pen.strokeStyle = palette.of("grid");
      pen.beginPath();
      pen.moveTo(GUTTER, y);
      pen.lineTo(GUTTER + plotWidth, y);
      pen.stroke();
      label(pen, `${share * 100}%`, GUTTER - 8, Math.min(bottom - 4, Math.max(7, y)), palette.of("soft"), "right");
    }
    const width = Math.max(1, Math.round(plotWidth * ratio));
    const { from, to } = axis.columns(width);
    const [low, high] = [0, 1].map(() => new Float64Array(width).fill(this.yOf(0)));
    const first = axis.firstColumn(width);
    for (let x = first; x < width; x += 1) {
      model.fragmentationPyramid.look(from[x], to[x]);
      low[x] = this.yOf(model.fragmentationPyramid.low / 65535);
      high[x] = this.yOf(model.fragmentationPyramid.high / 65535);
    }
    const colour = palette.of("fragmentation");
    fillUnder(pen, low, 1 / ratio, bottom, colour, 0.28);
    pen.beginPath();
    for (let x = first; x < width; x += 1) pen.rect(GUTTER + x / ratio, high[x] - 0.75, 1 / ratio, Math.max(1.5, low[x] - high[x]));
    pen.fillStyle = colour;
    pen.fill();
    model.fragmentationPyramid.look(0, Math.max(0, model.events - 1));
    const most = model.fragmentationPyramid.high / 65535;
    surface.data.setAttribute("aria-label", `Fragmentation over time, at most ${Math.round(most * 100)} percent.`);
  }
}

/** Lines through a plot at the moment and under the mouse. @param {Surface} surface @param {boolean} marked */
function drawCursors(surface, marked) {
  const { overPen: pen, plotWidth, height } = surface;
  const { axis, palette } = app;
  surface.clear(pen);
  pen.save();
  pen.beginPath();
  pen.rect(GUTTER - 5, 0, plotWidth + 10, height);
  pen.clip();
  if (app.range) {
    const [a, b] = app.range.map((value) => GUTTER + ((value - axis.from) / (axis.to - axis.from)) * plotWidth);
    pen.globalAlpha = 0.18;
    pen.fillStyle = palette.of("accent");
    pen.fillRect(Math.min(a, b), 0, Math.abs(b - a), height);
    pen.globalAlpha = 1;
  }
  if (marked) drawMarks(pen, plotWidth);
  if (app.hoverStep !== null) {
    const x = Math.round(GUTTER + axis.xOf(app.hoverStep, plotWidth)) + 0.5;
    pen.strokeStyle = palette.of("faint");
    pen.setLineDash([3, 3]);
    pen.beginPath();
    pen.moveTo(x, 0);
    pen.lineTo(x, height);
    pen.stroke();
    pen.setLineDash([]);
  }
  const x = GUTTER + axis.xOf(app.moment, plotWidth);
  pen.fillStyle = palette.of("mark");
  pen.fillRect(x - 0.75, 0, 1.5, height);
  if (marked) {
    pen.beginPath();
    pen.moveTo(x - 5, 0);
    pen.lineTo(x + 5, 0);
    pen.lineTo(x, 6);
    pen.fill();
  }
  pen.restore();
}

/** Where search hits were allocated, and how long the selected block was live. @param {CanvasRenderingContext2D} pen @param {number} plotWidth */
function drawMarks(pen, plotWidth) {
  const { axis, palette, model } = app;
  pen.fillStyle = palette.of("mark");
  let before = -9;
  for (const block of app.search.hits) {
    const x = axis.xOf(model.birth[block], plotWidth);
    if (x < 0 || x > plotWidth || x - before < 1) continue;
    before = x;
    pen.fillRect(GUTTER + x - 0.5, 0, 1, 5);
  }
  if (app.selected !== null) {
    const from = Math.max(0, axis.xOf(model.birth[app.selected], plotWidth));
    const death = model.death[app.selected];
    const to = Math.min(plotWidth, death === NEVER ? plotWidth : axis.xOf(death, plotWidth));
    if (to >= from) {
      pen.fillStyle = palette.of("ink");
      pen.fillRect(GUTTER + from, 7, Math.max(2, to - from), 3);
    }
  }
}
