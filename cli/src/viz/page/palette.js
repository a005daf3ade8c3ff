// @ts-check
// Colours, from the style sheet, and which group gets which.

/** How many groups have a colour of their own. */
const COLOURS = 8;

class Palette {
  constructor() {
    /** @type {Map<string, string>} */
    this.known = new Map();
    /** @type {Map<string, [number, number, number]>} */
    this.parts = new Map();
  }

  /** To be called when the theme has changed. */
  forget() {
    this.known.clear();
    this.parts.clear();
  }

  /** @param {string} name of a custom property, without its dashes */
  of(name) {
    let colour = this.known.get(name);
    if (colour === undefined) {
      colour = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
      this.known.set(name, colour);
    }
    return colour;
  }

  /** Red, green and blue. @param {string} name @returns {[number, number, number]} */
  rgb(name) {
    let parts = this.parts.get(name);
    if (!parts) {
      const hex = this.of(name).slice(1);
      const [red, green, blue] = [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
      parts = [red, green, blue];
      this.parts.set(name, parts);
    }
    return parts;
  }

  /** @param {number} rank */
  group(rank) {
    return rank < COLOURS ? `c${rank}` : "other";
  }
}

/** Dark to light, the same for every kind of sight: the ends and the middle of cividis. */
const RAMP = [[0, 52, 110], [62, 82, 110], [124, 123, 120], [188, 173, 108], [255, 233, 69]];

/** @param {number} share from 0 to 1 @returns {[number, number, number]} */
function rampColour(share) {
  const at = Math.min(1, Math.max(0, share)) * (RAMP.length - 1);
  const low = Math.min(RAMP.length - 2, Math.floor(at));
  const [a, b] = [RAMP[low], RAMP[low + 1]];
  return /** @type {[number, number, number]} */ (a.map((part, i) => Math.round(part + (b[i] - part) * (at - low))));
}

/** What blocks can be told apart by. */
class Groups {
  /** @param {Model} model @param {"stream" | "thread" | "tag"} by */
  constructor(model, by) {
    this.of = { stream: model.blockStream, thread: model.blockThread, tag: model.tag }[by];
    const count = { stream: model.streams, thread: model.threads, tag: model.tags }[by].length;
    const name = { stream: model.streamName, thread: model.threadName, tag: model.tagName }[by];
    const bytes = new Float64Array(count);
    const used = new Uint8Array(count);
    for (let block = 0; block < model.blocks; block += 1) {
      bytes[this.of[block]] += model.held[block];
      used[this.of[block]] = 1;
    }
    /** Those that held most come first. */
    this.order = Array.from(bytes.keys()).sort((a, b) => bytes[b] - bytes[a] || a - b);
    /** Those of them that have a colour of their own, in the order of their numbers. */
    this.coloured = this.order.slice(0, COLOURS).filter((group) => used[group] === 1).sort((a, b) => a - b);
    this.rank = new Uint32Array(count);
    this.order.forEach((group, rank) => { this.rank[group] = rank; });
    /** @param {number} group */
    this.name = (group) => name.call(model, group);
    this.count = count;
  }
}
