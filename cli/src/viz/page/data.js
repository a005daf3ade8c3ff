// @ts-check
// Unpacks what the page carries.

/** @typedef {Uint8Array | Uint16Array | Uint32Array} Numbers */
/** @typedef {{ type: "u8" | "u16" | "u32", at: number, count: number }} Place */

/** What the page was told, and its columns. */
class Data {
  /** @param {Uint8Array} heading its length in four bytes, and what it says */
  constructor(heading) {
    /** @type {any} */
    this.heading = JSON.parse(new TextDecoder().decode(heading.subarray(4)));
    this.bytes = new Uint8Array(this.heading.bytes);
    this.read = 0;
  }

  /** Puts a piece of the columns behind those before it. @param {Uint8Array} piece */
  add(piece) {
    this.bytes.set(piece, this.read);
    this.read += piece.length;
  }

  /** @param {string} name @returns {Numbers} */
  column(name) {
    /** @type {Place | undefined} */
    const place = this.heading.columns[name];
    if (!place) return new Uint8Array(0);
    const kind = { u8: Uint8Array, u16: Uint16Array, u32: Uint32Array }[place.type];
    return new kind(this.bytes.buffer, place.at, place.count);
  }

  /**
   * A column of long numbers. Exact up to 2^53, which is 8 PiB. Without a number, NaN: all bits are set.
   * @param {string} name
   */
  wide(name) {
    const low = this.column(`${name}.low`);
    const high = this.column(`${name}.high`);
    const numbers = new Float64Array(low.length);
    for (let i = 0; i < low.length; i += 1) numbers[i] = low[i];
    for (let i = 0; i < high.length; i += 1) {
      if (high[i] === 0xffffffff && low[i] === 0xffffffff) numbers[i] = NaN;
      else numbers[i] += high[i] * 2 ** 32;
    }
    return numbers;
  }
}

/** @param {string} text in base64 @returns {Uint8Array} */
function fromBase64(text) {
  const direct = /** @type {any} */ (Uint8Array).fromBase64;
  if (direct) return direct.call(Uint8Array, text);
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i += 1) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

/** @param {Element} piece @param {boolean} keep whether it is unpacked again later */
async function unpack(piece, keep) {
  const packed = fromBase64(piece.textContent ?? "");
  if (!keep) piece.remove();
  const stream = new Blob(/** @type {BlobPart[]} */ ([packed])).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/**
 * Reads data piece by piece, and lets go of its text: the first is the heading, which says how long the others are.
 * @param {Element[]} scripts @param {boolean} keep the text stays, packed as it is: there are others to show, and this again
 */
async function readData(scripts, keep) {
  const [first, ...pieces] = scripts.map((piece) => unpack(piece, keep));
  const heading = await first;
  const data = new Data(heading);
  for (const piece of pieces) data.add(await piece);
  return data;
}
