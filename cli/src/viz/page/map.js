// @ts-check
// The address map: who holds what at one moment, and where the holes are.

const ROW_HEIGHT = 15;
const ROW_GAP = 3;

class AddressMap {
  constructor() {
    this.surface = new Surface("plot-map");
    /** What is in view. */
    this.from = 0;
    this.to = 1;
    /** @type {"stream" | "thread" | "tag" | "size" | "age" | "state"} */
    this.by = "stream";
    /** The blocks that are drawn, in the order of their places. @type {number[]} */
    this.blocks = [];
    /** All that there are, also those of which nobody knows where. @type {number[]} */
    this.held = [];
    this.moment = -1;
    this.strip = document.createElement("canvas");
  }

  get rows() {
    return Math.max(1, Math.floor((this.surface.height + ROW_GAP) / (ROW_HEIGHT + ROW_GAP)));
  }

  all() {
    this.from = 0;
    this.to = Math.max(1, app.model.span);
  }

  /** @param {number} factor @param {number} around */
  zoom(factor, around) {
    const whole = Math.max(1, app.model.span);
    const span = Math.min(whole, Math.max(Math.min(whole, this.rows * 256), (this.to - this.from) * factor));
    const share = (around - this.from) / (this.to - this.from);
    this.from = Math.min(Math.max(0, around - share * span), whole - span);
    this.to = this.from + span;
  }

  /** @param {number} bytes */
  pan(bytes) {
    const span = this.to - this.from;
    this.from = Math.min(Math.max(0, this.from + bytes), Math.max(1, app.model.span) - span);
    this.to = this.from + span;
  }

  /** Bytes in one row. */
  get rowBytes() {
    return (this.to - this.from) / this.rows;
  }

  /** The place under a point, in CSS pixels of the plot; NaN between rows. @param {number} x @param {number} y */
  placeAt(x, y) {
    const row = Math.floor(y / (ROW_HEIGHT + ROW_GAP));
    if (row < 0 || row >= this.rows || y - row * (ROW_HEIGHT + ROW_GAP) > ROW_HEIGHT) return NaN;
    const share = (x - GUTTER) / this.surface.plotWidth;
    if (share < 0 || share >= 1) return NaN;
    return this.from + (row + share) * this.rowBytes;
  }

  /** Where a range is drawn, in CSS pixels, a rectangle for each row that it is in. @param {number} place @param {number} bytes */
  rectangles(place, bytes) {
    const { rowBytes, rows } = this;
    const width = this.surface.plotWidth;
    const found = [];
    const first = Math.max(0, Math.floor((place - this.from) / rowBytes));
    const last = Math.min(rows - 1, Math.ceil((place + bytes - this.from) / rowBytes) - 1);
    for (let row = first; row <= last; row += 1) {
      const begin = this.from + row * rowBytes;
      const left = Math.max(0, (place - begin) / rowBytes) * width;
      const right = Math.min(1, (place + bytes - begin) / rowBytes) * width;
      if (right > left) found.push({ x: GUTTER + left, y: row * (ROW_HEIGHT + ROW_GAP), width: right - left, height: ROW_HEIGHT });
    }
    return found;
  }

  /** Finds the blocks that are there at the moment. */
  collect() {
    if (this.moment === app.moment) return;
    this.moment = app.moment;
    const { place } = app.model;
    this.held = app.model.blocksAt(app.moment);
    this.blocks = app.model.placed ? this.held : this.held.filter((block) => !Number.isNaN(place[block]));
    this.blocks.sort((a, b) => place[a] - place[b]);
  }

  /** A function that gives the colour of a block. @returns {(block: number) => [number, number, number]} */
  colours() {
    const { model, palette } = app;
    const { by } = this;
    if (by === "size") {
      return (block) => rampColour((Math.log2(Math.max(256, model.bytes[block])) - 8) / 24);
    }
    if (by === "age") {
      const span = Math.log2(app.moment + 2);
      return (block) => rampColour(1 - Math.log2(app.moment - model.birth[block] + 1) / span);
    }
    if (by === "state") {
      const states = ["live", "cached", "pending", "hole"].map((name) => palette.rgb(name));
      return (block) => states[model.state[block]];
    }
    const groups = app.groups(by);
    const colours = Array.from({ length: COLOURS + 1 }, (_, rank) => palette.rgb(palette.group(rank)));
    return (block) => colours[Math.min(COLOURS, groups.rank[groups.of[block]])];
  }

  draw() {
    this.collect();
    const { surface, rows } = this;
    const { pen, plotWidth, ratio } = surface;
    const { model, palette } = app;
    surface.clear(pen);
    const width = Math.max(1, Math.round(plotWidth * ratio));
    const cells = width * rows;
    const scale = cells / (this.to - this.from);
    const colour = this.colours();
    // How much of each cell is reserved, and how much is taken, by what colour.
    const reserved = new Float32Array(cells + 1);
    const taken = new Float32Array((cells + 1) * 4);
    const { segment } = model;
    for (let i = 0; i < segment.place.length; i += 1) {
      if (segment.born[i] <= app.moment && segment.died[i] > app.moment) {
        cover((segment.place[i] - this.from) * scale, (segment.place[i] + segment.bytes[i] - this.from) * scale, cells, (cell, share) => { reserved[cell] += share; });
      }
    }
    const faded = palette.rgb("hole");
    const { hits, matched } = app.search;
    for (const block of this.blocks) {
      const begin = (model.place[block] - this.from) * scale;
      const end = begin + model.extent[block] * scale;
      if (end <= 0 || begin >= cells) continue;
      let [red, green, blue] = colour(block);
      if (hits.length && !matched[block]) {
        [red, green, blue] = [red, green, blue].map((part, i) => part * 0.22 + faded[i] * 0.78);
      }
      cover(begin, end, cells, (cell, share) => {
        taken[cell * 4] += red * share;
        taken[cell * 4 + 1] += green * share;
        taken[cell * 4 + 2] += blue * share;
        taken[cell * 4 + 3] += share;
      });
    }
    this.paint(width, reserved, taken);
    this.edges(scale);
    for (let row = 0; row < rows; row += Math.max(1, Math.round(2 * (11 / (ROW_HEIGHT + ROW_GAP))))) {
      const y = row * (ROW_HEIGHT + ROW_GAP) + ROW_HEIGHT / 2;
      label(pen, bytesText(this.from + row * this.rowBytes), GUTTER - 8, y, palette.of("soft"), "right");
    }
    this.describe();
  }

  /** @param {number} width @param {Float32Array} reserved @param {Float32Array} taken */
  paint(width, reserved, taken) {
    const { rows, strip, surface } = this;
    const { palette } = app;
    const [hole, nothing] = [palette.rgb("hole"), palette.rgb("nothing")];
    if (strip.width !== width || strip.height !== rows) [strip.width, strip.height] = [width, rows];
    const stripPen = /** @type {CanvasRenderingContext2D} */ (strip.getContext("2d"));
    const image = stripPen.createImageData(width, rows);
    const pixels = image.data;
    for (let cell = 0; cell < width * rows; cell += 1) {
      const held = Math.min(1, reserved[cell]);
      const share = taken[cell * 4 + 3];
      const free = Math.max(0, 1 - share);
      const over = share > 1 ? share : 1;
      for (let part = 0; part < 3; part += 1) {
        const ground = hole[part] * held + nothing[part] * (1 - held);
        pixels[cell * 4 + part] = taken[cell * 4 + part] / over + ground * free;
      }
      pixels[cell * 4 + 3] = 255;
    }
    stripPen.putImageData(image, 0, 0);
    surface.pen.imageSmoothingEnabled = false;
    for (let row = 0; row < rows; row += 1) {
      surface.pen.drawImage(strip, 0, row, width, 1, GUTTER, row * (ROW_HEIGHT + ROW_GAP), surface.plotWidth, ROW_HEIGHT);
    }
  }

  /** Lines between blocks that are wide enough, and where segments begin. @param {number} scale */
  edges(scale) {
    const { pen, ratio } = this.surface;
    const { model, palette } = app;
    pen.fillStyle = palette.of("edge");
    for (const block of this.blocks) {
      if (model.extent[block] * scale < 4 * ratio) continue;
      const [first] = this.rectangles(model.place[block], model.extent[block]);
      if (first && model.place[block] >= this.from) pen.fillRect(first.x - 0.5 / ratio, first.y, 1 / ratio, ROW_HEIGHT);
    }
    pen.fillStyle = palette.of("ink");
    const { segment } = model;
    for (let i = 0; i < segment.place.length; i += 1) {
      if (segment.born[i] > app.moment || segment.died[i] <= app.moment || segment.bytes[i] * scale < 6 * ratio) continue;
      if (segment.place[i] < this.from || segment.place[i] >= this.to) continue;
      const [first] = this.rectangles(segment.place[i], segment.bytes[i]);
      if (first) pen.fillRect(first.x, first.y - 1.5, 1.5, ROW_HEIGHT + 3);
    }
  }

  describe() {
    const { model } = app;
    let live = 0;
    for (const block of this.blocks) live += model.held[block];
    const total = `${plural(this.blocks.length, "block")}, ${bytesText(live)}, in ${plural(model.region.place.length, "region")} of ${bytesText(model.span)} together`;
    this.surface.data.setAttribute("aria-label", `Address map: ${total}.`);
  }

  drawOver() {
    const { surface } = this;
    const { overPen: pen } = surface;
    const { model, palette } = app;
    surface.clear(pen);
    for (const [block, colour] of /** @type {[number | null, string][]} */ ([[app.selected, "ink"], [app.hoverBlock, "mark"]])) {
      if (block === null || model.birth[block] > app.moment || model.gone[block] <= app.moment) continue;
      pen.strokeStyle = palette.of(colour);
      pen.lineWidth = 2;
      for (const { x, y, width, height } of this.rectangles(model.place[block], model.extent[block])) {
        pen.strokeRect(x - 1, y - 0.5, Math.max(2, width) + 1, height + 1);
      }
    }
  }

  /** The block at a place, or the one nearest within a pixel. @param {number} place @returns {number | null} */
  blockAt(place) {
    const { model } = app;
    let [low, high] = [0, this.blocks.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (model.place[this.blocks[middle]] <= place) low = middle + 1;
      else high = middle;
    }
    const block = this.blocks[low - 1];
    if (block !== undefined && place < model.place[block] + model.extent[block]) return block;
    const near = (this.rowBytes / this.surface.plotWidth) * 0.75;
    const after = this.blocks[low];
    if (block !== undefined && place - model.place[block] - model.extent[block] < near) return block;
    return after !== undefined && model.place[after] - place < near ? after : null;
  }

  /** The segment at a place, if any is there at the moment. @param {number} place */
  segmentAt(place) {
    const { segment } = app.model;
    for (let i = 0; i < segment.place.length; i += 1) {
      const inside = place >= segment.place[i] && place < segment.place[i] + segment.bytes[i];
      if (inside && segment.born[i] <= app.moment && segment.died[i] > app.moment) return i;
    }
    return -1;
  }

  /** The hole at a place where there is no block: where it begins, how long it is. @param {number} place */
  holeAt(place) {
    const { model } = app;
    const at = this.segmentAt(place);
    if (at < 0) return null;
    let begin = model.segment.place[at];
    let end = begin + model.segment.bytes[at];
    for (const block of this.blocks) {
      if (model.state.length && model.state[block] === 3) continue;
      const [first, last] = [model.place[block], model.place[block] + model.extent[block]];
      if (last <= place && last > begin) begin = last;
      if (first > place && first < end) end = first;
    }
    return { begin, bytes: end - begin };
  }
}

/** Calls `add` for each cell that a range lies in, with the share of the cell that it fills. @param {number} begin @param {number} end @param {number} cells @param {(cell: number, share: number) => void} add */
function cover(begin, end, cells, add) {
  const from = Math.max(0, begin);
  const to = Math.min(cells, end);
  if (!(to > from)) return;
  const first = Math.floor(from);
  const last = Math.ceil(to) - 1;
  if (first === last) {
    add(first, to - from);
    return;
  }
  add(first, first + 1 - from);
  for (let cell = first + 1; cell < last; cell += 1) add(cell, 1);
  add(last, to - last);
}
