// @ts-check
// Which events lie under which pixel.

/** Room for labels at the left of every plot, and what is left free at the right, so that all share one axis. */
const GUTTER = 66;
const MARGIN = 8;

class Axis {
  /** @param {Model} model */
  constructor(model) {
    this.model = model;
    /** By the clock, or each event as wide as any other. */
    this.byTime = false;
    this.from = 0;
    this.to = 1;
    /** Goes up with each change. */
    this.version = 0;
    this.all();
  }

  /** Where the axis ends: it begins at 0. */
  get end() {
    return this.byTime ? Math.max(1, this.model.end * 1.002) : Math.max(1, this.model.events);
  }

  all() {
    this.show(0, this.end);
  }

  /** @param {number} from @param {number} to */
  show(from, to) {
    const least = Math.min(this.end, this.byTime ? 20 : 8);
    const span = Math.min(this.end, Math.max(least, to - from));
    const middle = (from + to) / 2;
    this.from = Math.min(Math.max(0, middle - span / 2), this.end - span);
    this.to = this.from + span;
    this.version += 1;
  }

  /** @param {number} factor of what is in view @param {number} around this stays where it is */
  zoom(factor, around) {
    const span = Math.min(this.end, Math.max(Math.min(this.end, this.byTime ? 20 : 8), (this.to - this.from) * factor));
    const share = (around - this.from) / (this.to - this.from);
    const from = around - share * span;
    this.show(from, from + span);
  }

  /** @param {number} share of what is in view */
  pan(share) {
    const by = (this.to - this.from) * share;
    this.show(this.from + by, this.to + by);
  }

  /** Switches between events and time; what is in view stays in view. */
  turn() {
    const [first, last] = [this.stepAt(this.from), this.stepAt(this.to)];
    const whole = this.to - this.from >= this.end;
    this.byTime = !this.byTime;
    if (whole) this.all();
    else this.show(this.valueOf(first), this.valueOf(last));
  }

  /** The event whose state is that at a point of the axis. @param {number} value */
  stepAt(value) {
    const { events, time } = this.model;
    const step = this.byTime ? lastAtMost(time, value) : Math.floor(value);
    return Math.min(Math.max(0, step), Math.max(0, events - 1));
  }

  /** Where an event lies. @param {number} step */
  valueOf(step) {
    return this.byTime ? this.model.time[step] ?? 0 : step;
  }

  /** @param {number} step @param {number} width of the plot, in any unit */
  xOf(step, width) {
    const value = this.byTime ? this.valueOf(step) : step + 0.5;
    return ((value - this.from) / (this.to - this.from)) * width;
  }

  /** @param {number} x @param {number} width */
  valueAt(x, width) {
    return this.from + (x / width) * (this.to - this.from);
  }

  /** Makes an event visible, with some room around it. @param {number} step */
  reveal(step) {
    this.revealValue(this.valueOf(step));
  }

  /** Returns whether that changed what is in view. @param {number} value */
  revealValue(value) {
    const span = this.to - this.from;
    if (value >= this.from && (value <= this.to - span * 0.005 || this.to >= this.end)) return false;
    this.show(value - span / 2, value + span / 2);
    return true;
  }

  /**
   * For each pixel of `width`, the first and the last event whose state is seen there.
   * @param {number} width
   * @returns {{ from: Int32Array, to: Int32Array }}
   */
  columns(width) {
    const kept = this.kept;
    if (kept && kept.width === width && kept.version === this.version) return kept;
    const from = new Int32Array(width);
    const to = new Int32Array(width);
    const { model, byTime } = this;
    const last = Math.max(0, model.events - 1);
    const step = (this.to - this.from) / width;
    let before = this.stepAt(this.from);
    for (let x = 0; x < width; x += 1) {
      const end = this.from + step * (x + 1);
      // What begins exactly at the next pixel belongs to it.
      let until = byTime ? lastAtMost(model.time, end) : Math.ceil(end) - 1;
      until = Math.min(last, Math.max(before, until));
      from[x] = before;
      to[x] = until;
      before = byTime ? until : Math.min(last, Math.floor(end));
    }
    this.kept = { width, version: this.version, from, to };
    return this.kept;
  }

  /** The pixel of the first event: nothing is known of those before it. @param {number} width */
  firstColumn(width) {
    if (!this.byTime || this.model.events === 0) return 0;
    return Math.min(width, Math.max(0, Math.floor(this.xOf(0, width))));
  }

  /** Round points of the axis with their names: events are counted from 1, and lie in the middle of their room. @param {number} width in CSS pixels */
  ticks(width) {
    const span = this.to - this.from;
    const wanted = Math.max(2, Math.floor(width / 120));
    const step = this.byTime ? roundStep(span, wanted) : Math.max(1, roundStep(span, wanted));
    const ticks = [];
    if (this.byTime) {
      for (let at = Math.ceil(this.from / step) * step; at <= this.to; at += step) ticks.push({ at, name: durationText(+at.toPrecision(12)) });
      return ticks;
    }
    for (let event = Math.max(1, Math.ceil((this.from + 0.5) / step)) * step; event - 0.5 <= this.to; event += step) ticks.push({ at: event - 0.5, name: countText(event) });
    return ticks;
  }
}
