// @ts-check
// The devices of a page: what each did at a glance, and which of them is shown.

/** @typedef {{ ordinal: number, events: number, blocks: number, failures: number, peak_live: number, peak_reserved: number | null, curve: number[], pieces: number }} Device */

/** What stays as it is when another device is shown. @typedef {{ byTime: boolean, from: number, to: number, time: number, fitHeight: boolean, lanes: "stream" | "thread", inView: boolean, countsBlocks: boolean, search: string }} Kept */

/** The height of a small curve; it is as wide as it has values. */
const SMALL_HEIGHT = 26;

/** The list of devices; a page of one has none. */
class Devices {
  constructor() {
    const words = document.getElementById("devices-data")?.textContent;
    /** @type {Device[]} */
    this.all = words ? JSON.parse(words) : [];
    this.pieces = [...document.querySelectorAll("script.data")];
    /** Which is shown, as a place in the list. */
    this.shown = 0;
    this.tabs = byId("devices-tabs");
  }

  get several() {
    return this.all.length > 0;
  }

  /** The scripts with the data of a device. @param {number} at */
  piecesOf(at) {
    if (!this.several) return this.pieces;
    const before = this.all.slice(0, at).reduce((count, device) => count + device.pieces, 0);
    return this.pieces.slice(before, before + this.all[at].pieces);
  }

  /** The device that the address of the page names, or the first. */
  wished() {
    const named = /^#gpu=(\d+)$/.exec(location.hash);
    const at = named ? this.all.findIndex((device) => device.ordinal === Number(named[1])) : -1;
    return Math.max(0, at);
  }

  /** Names a device in the address: who listens to it shows the device. @param {number} at */
  choose(at) {
    const { length } = this.all;
    if (length) location.hash = `gpu=${this.all[(at + length) % length].ordinal}`;
  }

  /** @param {number} at */
  mark(at) {
    this.shown = at;
    this.tabs.querySelectorAll("button").forEach((tab, i) => {
      tab.setAttribute("aria-selected", String(i === at));
      tab.tabIndex = i === at ? 0 : -1;
      if (i === at) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
    });
  }

  /** Writes the list. */
  write() {
    byId("devices").hidden = !this.several;
    if (!this.several) return;
    const sum = (/** @type {(device: Device) => number} */ of) => this.all.reduce((total, device) => total + of(device), 0);
    const failures = sum((device) => device.failures);
    const together = [plural(this.all.length, "device"), plural(sum((device) => device.events), "event")];
    if (failures) together.push(`${countText(failures)} failed`);
    const peaks = [`live peaks ${bytesText(sum((device) => device.peak_live))}`];
    if (this.all.every((device) => device.peak_reserved !== null)) peaks.push(`reserved ${bytesText(sum((device) => device.peak_reserved ?? 0))}`);
    byId("devices-sum").textContent = `${together.join(" · ")}\n${peaks.join(" · ")}`;
    // One scale for all, so that they can be compared.
    const most = Math.max(1, ...this.all.map((device) => device.peak_live));
    this.tabs.replaceChildren(...this.all.map((device, at) => this.tabOf(device, at, most)));
    this.tabs.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      event.stopPropagation();
      const next = (this.shown + by + this.all.length) % this.all.length;
      /** @type {HTMLElement} */ (this.tabs.children[next]).focus();
      this.choose(next);
    });
  }

  /** @param {Device} device @param {number} at @param {number} most */
  tabOf(device, at, most) {
    const tab = Object.assign(document.createElement("button"), { type: "button", id: `device-${device.ordinal}` });
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", "main");
    const [name, figures] = [document.createElement("b"), document.createElement("span")];
    name.textContent = `GPU ${device.ordinal}`;
    figures.textContent = `${bytesText(device.peak_live)} · ${plural(device.events, "event")}`;
    const words = [`GPU ${device.ordinal}`, `live peak ${bytesText(device.peak_live)}`];
    if (device.peak_reserved !== null) words.push(`reserved peak ${bytesText(device.peak_reserved)}`);
    words.push(plural(device.events, "event"), plural(device.blocks, "block"));
    if (device.failures) {
      const failed = Object.assign(document.createElement("em"), { textContent: ` · ${countText(device.failures)} failed` });
      figures.append(failed);
      words.push(plural(device.failures, "failed allocation"));
    }
    tab.title = words.join("\n");
    tab.setAttribute("aria-label", words.join(", "));
    tab.append(name, smallCurve(device.curve, most), figures);
    tab.addEventListener("click", () => this.choose(at));
    return tab;
  }
}

/** What was live over the time of all devices. @param {number[]} curve @param {number} most */
function smallCurve(curve, most) {
  const template = /** @type {HTMLTemplateElement} */ (document.getElementById("small-curve"));
  const box = /** @type {Element} */ (template.content.cloneNode(true).firstChild);
  box.setAttribute("viewBox", `0 0 ${curve.length} ${SMALL_HEIGHT}`);
  const rise = (/** @type {number} */ bytes) => (SMALL_HEIGHT - (bytes / most) * (SMALL_HEIGHT - 2)).toFixed(1);
  box.firstElementChild?.setAttribute("d", `M0 ${SMALL_HEIGHT}${curve.map((bytes, x) => `V${rise(bytes)}H${x + 1}`).join("")}V${SMALL_HEIGHT}z`);
  return box;
}
