// @ts-check
// How large blocks are.

class Histogram {
  constructor() {
    this.surface = new Surface("plot-sizes");
    /** Of what is live at the moment, or of what is allocated in view. */
    this.inView = false;
    this.countsBlocks = false;
    /** For each power of two, from 2^8 on. @type {{ bytes: number, blocks: number }[]} */
    this.bars = [];
    this.first = 8;
  }

  count() {
    const { model, map, axis } = app;
    const bars = Array.from({ length: 64 }, () => ({ bytes: 0, blocks: 0 }));
    const add = (/** @type {number} */ block) => {
      const bar = bars[Math.min(63, Math.floor(Math.log2(Math.max(1, model.bytes[block]))))];
      bar.bytes += model.held[block];
      bar.blocks += 1;
    };
    if (this.inView) {
      const { birth, blocks } = model;
      const [first, last] = [axis.stepAt(axis.from), axis.stepAt(axis.to)];
      for (let block = lastAtMost(birth, first - 1) + 1; block < blocks && birth[block] <= last; block += 1) add(block);
    } else {
      for (const block of map.held) if (!model.state.length || model.state[block] === 0) add(block);
    }
    let last = bars.length - 1;
    while (last > 20 && !bars[last].blocks) last -= 1;
    let first = 0;
    while (first < 8 && !bars[first].blocks) first += 1;
    this.first = first;
    this.bars = bars.slice(first, last + 1);
  }

  draw() {
    this.count();
    const { surface, bars } = this;
    const { pen, width, height } = surface;
    const { palette } = app;
    surface.clear(pen);
    const bottom = height - 18;
    const measure = this.countsBlocks ? "blocks" : "bytes";
    const most = bars.reduce((value, bar) => Math.max(value, bar[measure]), 0);
    const wide = width / bars.length;
    pen.fillStyle = palette.of("line");
    pen.fillRect(0, bottom, width, 1);
    if (most === 0) {
      label(pen, this.inView ? "nothing is allocated in view" : "nothing is live", width / 2, bottom / 2, palette.of("soft"), "center");
    }
    let named = -44;
    bars.forEach((bar, at) => {
      const rise = most ? (bar[measure] / most) * (bottom - 16) : 0;
      pen.fillStyle = palette.of(this.inView ? "reserved" : "live");
      if (bar.blocks) pen.fillRect(at * wide + 1, bottom - Math.max(1.5, rise), Math.max(1, wide - 2), Math.max(1.5, rise));
      const power = this.first + at;
      const middle = Math.min(width - 22, Math.max(18, (at + 0.5) * wide));
      if (power % 5 === 0 && middle - named > 44) {
        label(pen, roundText(2 ** power), middle, bottom + 10, palette.of("soft"), "center");
        named = middle;
      }
    });
    if (most) label(pen, this.countsBlocks ? plural(most, "block") : bytesText(most), width - 2, 7, palette.of("soft"), "right");
    surface.data.setAttribute("aria-label", `Sizes of ${this.inView ? "what is allocated in view" : "what is live"}: ${bars.map((bar, at) => (bar.blocks ? `${this.range(at)}: ${plural(bar.blocks, "block")}, ${bytesText(bar.bytes)}` : "")).filter(Boolean).join("; ")}.`);
  }

  /** @param {number} at */
  range(at) {
    return `${roundText(2 ** (this.first + at))} to ${roundText(2 ** (this.first + at + 1))}`;
  }

  /** What is under the mouse. @param {number} x @returns {string | null} */
  tip(x) {
    const at = Math.floor(x / (this.surface.width / this.bars.length));
    const bar = this.bars[at];
    return bar ? `${this.range(at)}\n${plural(bar.blocks, "block")}, ${bytesText(bar.bytes)}` : null;
  }
}
