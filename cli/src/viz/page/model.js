// @ts-check
// What happened: the columns, and what follows from them.

const NEVER = 0xffffffff;

/** The last place in `sorted` whose value is `value` or less; -1 if there is none. @param {ArrayLike<number>} sorted @param {number} value */
function lastAtMost(sorted, value) {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (sorted[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

class Model {
  /** @param {Data} data */
  constructor(data) {
    const heading = data.heading;
    this.heading = heading;
    /** @type {"recorded" | "replayed" | "snapshot"} */
    this.kind = heading.kind;
    this.events = /** @type {number} */ (heading.events);
    this.blocks = /** @type {number} */ (heading.blocks);
    /** @type {string[]} */
    this.tags = heading.tags;
    /** @type {string[]} */
    this.streams = heading.streams;
    /** @type {string[]} */
    this.threads = heading.threads;
    this.bytes = data.wide("block.bytes");
    this.place = data.wide("block.place");
    this.tag = data.column("block.tag");
    /** Of a snapshot: 0 live, 1 cached, 2 pending, 3 free. */
    this.state = data.column("block.state");
    this.eventStream = data.column("event.stream");
    this.eventThread = data.column("event.thread");
    this.fragmentation = /** @type {Uint16Array} */ (data.column("event.fragmentation"));
    this.region = {
      place: data.wide("region.place"),
      bytes: data.wide("region.bytes"),
      address: /** @type {string[]} */ (heading.regions).map((address) => BigInt(address)),
    };
    this.segment = {
      place: data.wide("segment.place"),
      bytes: data.wide("segment.bytes"),
      born: data.column("segment.born"),
      died: data.column("segment.died"),
    };
    const regions = this.region.place.length;
    /** How long all regions are together. */
    this.span = regions ? this.region.place[regions - 1] + this.region.bytes[regions - 1] : 0;
    const { events, blocks } = this;
    /** Of each event. */
    this.eventBlock = new Uint32Array(events);
    /** The events that allocated and freed each block. */
    this.birth = new Uint32Array(blocks);
    this.death = new Uint32Array(blocks).fill(NEVER);
    /** Until when the map shows each block. */
    this.gone = this.death;
    /** How long each block is drawn, and what it counts. */
    this.extent = new Float64Array(blocks);
    this.held = new Float64Array(blocks);
    /** The stream and the thread that each block was allocated on; of a snapshot, the stream that has to do with it. */
    this.blockStream = data.column("block.stream");
    /** @type {Numbers} */
    this.blockThread = new Uint8Array(0);
    this.readBlocks(data);
    /** Whether every block is somewhere. */
    this.placed = !this.place.some(Number.isNaN);
    /** From the first event of any device to the first of this one. */
    this.later = /** @type {number} */ (heading.device?.later_microseconds ?? 0);
    /** Microseconds since the first event, of any device. They never go back. */
    this.time = data.wide("event.microseconds");
    this.live = new Float64Array(events);
    /** The event after which most was live. */
    this.peak = 0;
    this.addUp();
    this.failures = new Failures(this, data);
    /** From the first event to the last, or to the last that failed. */
    this.duration = Math.max(this.time[events - 1] ?? 0, this.failures.time[this.failures.count - 1] ?? 0);
    /** Where the axis of time ends: with the last event of any device. */
    this.end = Math.max(this.duration, heading.device?.whole_microseconds ?? 0);
    this.livePyramid = new Pyramid(this.live);
    this.fragmentationPyramid = new Pyramid(this.fragmentation);
    this.reserved = { step: data.column("reserved.step"), bytes: data.wide("reserved.bytes") };
    this.reservedPyramid = new Pyramid(this.reserved.bytes);
    this.sample = { step: data.column("sample.step"), cached: data.wide("sample.cached") };
    // At some events only. Their sum is kept: the most of one and the most of the other may be at two events.
    this.takenPyramid = new Pyramid(this.sample.cached.map((cached, at) => cached + this.live[this.sample.step[at]]));
  }

  /** @param {Data} data */
  readBlocks(data) {
    const { events, blocks } = this;
    const back = data.column("event.back");
    let known = 0;
    for (let i = 0; i < events; i += 1) {
      if (back[i] === 0) {
        this.eventBlock[i] = known;
        this.birth[known] = i;
        known += 1;
      } else {
        const block = known - back[i];
        this.eventBlock[i] = block;
        this.death[block] = i;
      }
    }
    const covered = data.column("covered.block");
    const since = data.column("covered.step");
    if (covered.length) this.gone = this.death.slice();
    for (let i = 0; i < covered.length; i += 1) this.gone[covered[i]] = Math.min(this.gone[covered[i]], since[i]);
    const unit = this.heading.unit;
    for (let block = 0; block < blocks; block += 1) {
      const whole = Math.ceil(this.bytes[block] / 256) * 256;
      this.extent[block] = unit === 256 ? whole : this.bytes[block];
      // What failed in a replay was never there, and what is free in a snapshot is held by nobody.
      const counts = this.state.length ? this.state[block] === 0 : this.kind !== "replayed" || !Number.isNaN(this.place[block]);
      this.held[block] = counts ? whole : 0;
    }
    if (this.kind !== "snapshot") {
      this.blockStream = new Uint32Array(blocks);
      this.blockThread = new Uint32Array(blocks);
      for (let block = 0; block < blocks; block += 1) {
        this.blockStream[block] = this.eventStream[this.birth[block]];
        this.blockThread[block] = this.eventThread[this.birth[block]];
      }
    }
  }

  /** Makes times of the steps between them, and the curve of what is live. */
  addUp() {
    let [now, live] = [this.later, 0];
    for (let i = 0; i < this.events; i += 1) {
      now += this.time[i];
      this.time[i] = now;
      const block = this.eventBlock[i];
      live += this.birth[block] === i ? this.held[block] : -this.held[block];
      this.live[i] = live;
      if (live > this.live[this.peak]) this.peak = i;
    }
  }

  /** What was reserved after an event; NaN if nobody knows. @param {number} step */
  reservedAt(step) {
    const at = lastAtMost(this.reserved.step, step);
    return at < 0 ? (this.kind === "replayed" ? 0 : NaN) : this.reserved.bytes[at];
  }

  /** @param {number} step */
  cachedAt(step) {
    const at = lastAtMost(this.sample.step, step);
    return at < 0 ? NaN : this.sample.cached[at];
  }

  peakReserved() {
    return this.reserved.bytes.reduce((most, bytes) => Math.max(most, bytes), 0);
  }

  /** The blocks that there are after an event, in the order of their allocation. @param {number} step */
  blocksAt(step) {
    const { birth, gone, blocks, state } = this;
    const found = [];
    for (let block = 0; block < blocks && birth[block] <= step; block += 1) {
      if (gone[block] > step && state[block] !== 3) found.push(block);
    }
    return found;
  }

  /** @param {number} place */
  addressOf(place) {
    const at = lastAtMost(this.region.place, place);
    if (at < 0 || Number.isNaN(place)) return "unknown";
    return `0x${(this.region.address[at] + BigInt(Math.floor(place - this.region.place[at]))).toString(16)}`;
  }

  /** The place of an address; NaN if there is none. @param {bigint} address */
  placeOf(address) {
    let [low, high] = [0, this.region.address.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.region.address[middle] <= address) low = middle + 1;
      else high = middle;
    }
    if (low === 0) return NaN;
    const offset = Number(address - this.region.address[low - 1]);
    return offset < this.region.bytes[low - 1] ? this.region.place[low - 1] + offset : NaN;
  }

  /** @param {number} tag */
  tagName(tag) {
    return this.tags[tag] ? this.tags[tag].split(";").join(" › ") : "no tag";
  }

  /** @param {number} stream */
  streamName(stream) {
    return `stream ${stream}`;
  }

  /** @param {number} thread */
  threadName(thread) {
    return `thread ${this.threads[thread]}`;
  }

  /** An event with its time; people count from 1. @param {number} step */
  momentText(step) {
    return `event ${countText(step + 1)} · ${durationText(this.time[step] ?? 0)}`;
  }
}
