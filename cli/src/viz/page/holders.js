// @ts-check
// Who holds most at the moment.

const MOST_HOLDERS = 60;

class Holders {
  constructor() {
    this.table = /** @type {HTMLElement} */ (document.querySelector("#holders-table tbody"));
    this.none = /** @type {HTMLElement} */ (document.getElementById("holders-none"));
    /** @type {"tag" | "size" | "stream" | "thread" | "block"} */
    this.by = "size";
    /** What is shown. @type {{ name: string, bytes: number, blocks: number }[]} */
    this.rows = [];
  }

  /** Adds up what is live, by group. */
  count() {
    const { model, map } = app;
    /** @type {Map<number, { bytes: number, blocks: number }>} */
    const sums = new Map();
    const key = {
      tag: (/** @type {number} */ block) => model.tag[block],
      size: (/** @type {number} */ block) => model.bytes[block],
      stream: (/** @type {number} */ block) => model.blockStream[block],
      thread: (/** @type {number} */ block) => model.blockThread[block],
      block: (/** @type {number} */ block) => block,
    }[this.by];
    for (const block of map.held) {
      if (model.state.length && model.state[block] !== 0) continue;
      const group = key(block);
      const sum = sums.get(group) ?? { bytes: 0, blocks: 0 };
      sum.bytes += model.held[block];
      sum.blocks += 1;
      sums.set(group, sum);
    }
    return [...sums].sort(([a, left], [b, right]) => right.bytes - left.bytes || a - b);
  }

  draw() {
    const { model, palette } = app;
    const sums = this.count();
    const most = sums.length ? sums[0][1].bytes : 0;
    const name = {
      tag: (/** @type {number} */ group) => model.tagName(group),
      size: (/** @type {number} */ group) => `of ${bytesText(group)}`,
      stream: (/** @type {number} */ group) => model.streamName(group),
      thread: (/** @type {number} */ group) => model.threadName(group),
      block: (/** @type {number} */ group) => `block #${group}`,
    }[this.by];
    const query = {
      tag: (/** @type {number} */ group) => (model.tags[group] ? `tag:${model.tags[group]}` : "tag:"),
      size: (/** @type {number} */ group) => `=${group}`,
      stream: (/** @type {number} */ group) => `stream ${group}`,
      thread: (/** @type {number} */ group) => `thread ${model.threads[group]}`,
      block: (/** @type {number} */ group) => `#${group}`,
    }[this.by];
    const shown = sums.slice(0, MOST_HOLDERS);
    this.rows = shown.map(([group, sum]) => ({ name: name(group), ...sum }));
    this.none.hidden = sums.length > 0;
    const grouped = this.by === "size" || this.by === "block" || this.by !== app.map.by ? null : app.groups(this.by);
    const rows = shown.map(([group, sum]) => {
      const row = document.createElement("tr");
      const button = document.createElement("button");
      button.type = "button";
      button.title = `${name(group)}: ${exactText(sum.bytes)}. Search for it.`;
      if (grouped) {
        const swatch = document.createElement("i");
        swatch.style.background = palette.of(palette.group(grouped.rank[group]));
        button.append(swatch);
      }
      const words = document.createElement("span");
      words.textContent = name(group);
      button.append(words);
      button.addEventListener("click", () => {
        if (this.by === "block") app.select(group);
        else app.search.run(query(group));
      });
      const cells = [button, countText(sum.blocks), bytesText(sum.bytes)].map((content, at) => {
        const cell = document.createElement("td");
        cell.append(content);
        if (at > 0) cell.className = "number";
        return cell;
      });
      button.style.setProperty("--share", `${(sum.bytes / most) * 100}%`);
      row.append(...cells);
      return row;
    });
    if (sums.length > shown.length) {
      const rest = sums.slice(MOST_HOLDERS).reduce((bytes, [, sum]) => bytes + sum.bytes, 0);
      const row = document.createElement("tr");
      const cell = document.createElement("td");
      cell.colSpan = 3;
      cell.className = "aside";
      cell.textContent = `and ${countText(sums.length - shown.length)} more with ${bytesText(rest)}`;
      row.append(cell);
      rows.push(row);
    }
    this.table.replaceChildren(...rows);
  }
}
