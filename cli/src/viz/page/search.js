// @ts-check
// Finds blocks by tag, address, number, size, stream or thread.

const MOST_HITS = 100;

class Search {
  constructor() {
    this.input = /** @type {HTMLInputElement} */ (document.getElementById("search"));
    this.list = /** @type {HTMLElement} */ (document.getElementById("hits"));
    /** In the order of their allocation. @type {number[]} */
    this.hits = [];
    /** 1 for each hit. */
    this.matched = new Uint8Array(0);
    this.chosen = -1;
    this.input.addEventListener("input", () => this.find(true));
    this.input.addEventListener("focus", () => this.open(this.hits.length > 0));
    this.input.addEventListener("blur", () => setTimeout(() => this.open(false), 150));
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.list.addEventListener("pointerdown", (event) => event.preventDefault());
  }

  /**
   * Tells whether a block is meant.
   * @param {string} text
   * @returns {((block: number) => boolean) | null}
   */
  static meaning(text) {
    const { model } = app;
    const words = text.trim();
    if (!words) return null;
    const lower = words.toLowerCase();
    if (/^0x[0-9a-f]+$/.test(lower)) {
      const place = model.placeOf(BigInt(lower));
      return (block) => place >= model.place[block] && place < model.place[block] + model.extent[block];
    }
    const number = /^(?:#|block[ :#]*)?(\d+)$/.exec(lower);
    if (number) return (block) => block === Number(number[1]);
    const size = /^([<>=])\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?$/.exec(lower);
    if (size) {
      const bytes = Number(size[2]) * 1024 ** " kmgt".indexOf(size[3] || " ");
      const compare = { "<": (/** @type {number} */ a) => a < bytes, ">": (/** @type {number} */ a) => a > bytes, "=": (/** @type {number} */ a) => a === bytes }[size[1]];
      return (block) => compare !== undefined && compare(model.bytes[block]);
    }
    const stream = /^(?:stream|s)[ :]*(0x[0-9a-f]+|\d+)$/.exec(lower);
    if (stream) {
      const which = stream[1].startsWith("0x") ? model.streams.indexOf(stream[1]) : Number(stream[1]);
      return (block) => model.blockStream[block] === which;
    }
    const thread = /^(?:thread|t)[ :]*(\d+)$/.exec(lower);
    if (thread) {
      const which = model.threads.indexOf(thread[1]);
      return (block) => model.blockThread[block] === which;
    }
    const exact = lower.startsWith("tag:");
    const wanted = exact ? lower.slice(4).trim() : lower.replaceAll(" › ", ";");
    const meant = Uint8Array.from(model.tags, (tag) => Number(exact ? tag.toLowerCase() === wanted : tag.toLowerCase().includes(wanted)));
    return (block) => meant[model.tag[block]] === 1;
  }

  /** @param {string} text */
  run(text) {
    this.input.value = text;
    this.find(false);
  }

  /** @param {boolean} open */
  find(open) {
    const { model } = app;
    const meant = Search.meaning(this.input.value);
    const hits = [];
    this.matched = new Uint8Array(meant ? model.blocks : 0);
    if (meant) {
      for (let block = 0; block < model.blocks; block += 1) {
        if (!meant(block)) continue;
        hits.push(block);
        this.matched[block] = 1;
      }
    }
    this.hits = hits;
    this.chosen = -1;
    this.show();
    this.open(open && this.input.value.trim() !== "");
    app.changed("map");
  }

  show() {
    const { model } = app;
    const rows = this.hits.slice(0, MOST_HITS).map((block, at) => {
      const row = document.createElement("div");
      row.setAttribute("role", "option");
      row.id = `hit-${at}`;
      const [name, what] = [document.createElement("span"), document.createElement("span")];
      name.textContent = `#${block}  ${model.tags[model.tag[block]] ? model.tagName(model.tag[block]) : model.addressOf(model.place[block])}`;
      what.textContent = `${bytesText(model.bytes[block])} · ${app.snapshot ? "" : `event ${countText(model.birth[block] + 1)}`}`;
      row.append(name, what);
      row.addEventListener("click", () => this.choose(at));
      return row;
    });
    const count = document.createElement("div");
    count.className = "count";
    const total = this.hits.reduce((bytes, block) => bytes + model.bytes[block], 0);
    count.textContent = this.hits.length === 0 ? "Nothing found" : `${plural(this.hits.length, "block")}, ${bytesText(total)} together${this.hits.length > MOST_HITS ? `; the first ${MOST_HITS}:` : ""}`;
    this.list.replaceChildren(count, ...rows);
  }

  /** @param {boolean} open */
  open(open) {
    this.list.hidden = !open;
    this.input.setAttribute("aria-expanded", String(open));
  }

  /** @param {number} at */
  choose(at) {
    const block = this.hits[at];
    if (block === undefined) return;
    this.mark(at);
    app.select(block);
    if (!app.snapshot && (app.model.birth[block] > app.moment || app.model.gone[block] <= app.moment)) app.goTo(app.model.birth[block]);
    this.open(false);
  }

  /** @param {number} at */
  mark(at) {
    const rows = this.list.querySelectorAll("[role=option]");
    if (rows.length === 0) return;
    this.chosen = (at + rows.length) % rows.length;
    rows.forEach((row, i) => row.setAttribute("aria-selected", String(i === this.chosen)));
    rows[this.chosen].scrollIntoView({ block: "nearest" });
    this.input.setAttribute("aria-activedescendant", rows[this.chosen].id);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      this.open(this.hits.length > 0);
      this.mark(this.chosen + (event.key === "ArrowDown" ? 1 : -1));
    } else if (event.key === "Enter") {
      this.choose(Math.max(0, this.chosen));
    } else if (event.key === "Escape") {
      if (this.input.value === "") this.input.blur();
      else this.run("");
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }
}
