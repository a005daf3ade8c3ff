// @ts-check
// Unpacks what the page carries.

/** @typedef {Uint8Array | Uint16Array | Uint32Array} Numbers */
/** @typedef {{ type: "u8" | "u16" | "u32", at: number, count: number }} Place */

/** What the page was told, and its columns. */
class Data {
  /** @param {ArrayBuffer} bytes */
  constructor(bytes) {
    const length = new DataView(bytes).getUint32(0, true);
    /** @type {any} */
    this.heading = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 4, length)));
    this.bytes = bytes;
    this.start = 4 + length;
  }

  /** @param {string} name @returns {Numbers} */
  column(name) {
    /** @type {Place | undefined} */
    const place = this.heading.columns[name];
    if (!place) return new Uint8Array(0);
    const kind = { u8: Uint8Array, u16: Uint16Array, u32: Uint32Array }[place.type];
    return new kind(this.bytes, this.start + place.at, place.count);
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

/** Reads the page's data, and lets go of its text. */
async function readData() {
  const pieces = [...document.querySelectorAll("script.data")];
  const packed = pieces.map((piece) => {
    const bytes = fromBase64(piece.textContent ?? "");
    piece.remove();
    return bytes;
  });
  const stream = new Blob(/** @type {BlobPart[]} */ (packed)).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Data(await new Response(stream).arrayBuffer());
}
