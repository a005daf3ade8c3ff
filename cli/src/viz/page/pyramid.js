// @ts-check
// Least and largest of any stretch of a curve, in a number of steps that grows with the logarithm of its length.

class Pyramid {
  /** @param {Float64Array | Uint16Array} values */
  constructor(values) {
    this.values = values;
    /** Each has the least and the largest of 16 of the level before. @type {{ least: Float64Array, largest: Float64Array }[]} */
    this.levels = [];
    let [least, largest] = [values, values];
    while (least.length > 16) {
      const length = Math.ceil(least.length / 16);
      const level = { least: new Float64Array(length), largest: new Float64Array(length) };
      for (let at = 0; at < length; at += 1) {
        const end = Math.min(least.length, at * 16 + 16);
        let [low, high] = [least[at * 16], largest[at * 16]];
        for (let i = at * 16 + 1; i < end; i += 1) {
          if (least[i] < low) low = least[i];
          if (largest[i] > high) high = largest[i];
        }
        level.least[at] = low;
        level.largest[at] = high;
      }
      this.levels.push(level);
      least = /** @type {any} */ (level.least);
      largest = /** @type {any} */ (level.largest);
    }
    this.low = 0;
    this.high = 0;
  }

  /** Leaves the least and the largest of `from..=to` in `low` and `high`. @param {number} from @param {number} to */
  look(from, to) {
    const values = this.values;
    let low = values[from];
    let high = low;
    let [begin, end] = [from, to + 1];
    /** @type {any} */
    let least = values;
    /** @type {any} */
    let largest = values;
    for (let at = 0; ; at += 1) {
      const up = this.levels[at];
      const whole = up && end - begin > 32;
      const head = whole ? Math.min(end, Math.ceil(begin / 16) * 16) : end;
      for (let i = begin; i < head; i += 1) {
        if (least[i] < low) low = least[i];
        if (largest[i] > high) high = largest[i];
      }
      if (!whole) break;
      const tail = Math.floor(end / 16) * 16;
      for (let i = tail; i < end; i += 1) {
        if (least[i] < low) low = least[i];
        if (largest[i] > high) high = largest[i];
      }
      begin = head / 16;
      end = tail / 16;
      least = up.least;
      largest = up.largest;
    }
    this.low = low;
    this.high = high;
  }
}
