// @ts-check
// Allocations that failed: when, on which stream, what for, and how many bytes were wanted.

/** So many are listed; all of them are drawn. */
const MOST_FAILURES = 500;

/** Allocations that failed, in the order of their events: those of the log, and those of the replay. */
class Failures {
  /** @param {Model} model @param {Data} data */
  constructor(model, data) {
    const logged = {
      /** How many events come before each. */
      after: data.column("failure.after"),
      time: data.wide("failure.microseconds"),
      bytes: data.wide("failure.bytes"),
      stream: data.column("failure.stream"),
      thread: data.column("failure.thread"),
      tag: data.column("failure.tag"),
    };
    // In a replay, a block that is nowhere is one that the stack had no memory for.
    const lost = [];
    if (model.kind === "replayed") {
      for (let block = 0; block < model.blocks; block += 1) if (Number.isNaN(model.place[block])) lost.push(block);
    }
    this.count = logged.after.length + lost.length;
    /** The event after which each is shown. */
    this.step = new Uint32Array(this.count);
    /** Where each lies on an axis of events. */
    this.at = new Float64Array(this.count);
    this.time = new Float64Array(this.count);
    this.bytes = new Float64Array(this.count);
    this.stream = new Uint32Array(this.count);
    this.thread = new Uint32Array(this.count);
    this.tag = new Uint32Array(this.count);
    /** The block that was not there, of a replay; -1 of the log. */
    this.block = new Int32Array(this.count).fill(-1);
    let [from, of] = [0, 0];
    for (let i = 0; i < this.count; i += 1) {
      const birth = of < lost.length ? model.birth[lost[of]] : Infinity;
      if (from < logged.after.length && logged.after[from] <= birth) {
        this.step[i] = Math.max(0, logged.after[from] - 1);
        this.at[i] = logged.after[from];
        this.time[i] = Math.max(model.later + logged.time[from], model.time[this.step[i]] ?? 0);
        this.bytes[i] = logged.bytes[from];
        this.stream[i] = logged.stream[from];
        this.thread[i] = logged.thread[from];
        this.tag[i] = logged.tag[from];
        from += 1;
      } else {
        const block = lost[of];
        this.step[i] = birth;
        this.at[i] = birth + 0.5;
        this.time[i] = model.time[birth];
        this.bytes[i] = model.bytes[block];
        this.stream[i] = model.blockStream[block];
        this.thread[i] = model.blockThread[block];
        this.tag[i] = model.tag[block];
        this.block[i] = block;
        of += 1;
      }
      // Two threads may log in another order than their times.
      if (i > 0) this.time[i] = Math.max(this.time[i], this.time[i - 1]);
    }
  }

  /** The values of the axis at which they lie: they never go back. @param {boolean} byTime */
  values(byTime) {
    return byTime ? this.time : this.at;
  }

  /** @param {number} failure */
  purpose(failure) {
    return app.model.tagName(this.tag[failure]);
  }

  /** @param {number} failure */
  text(failure) {
    const { model } = app;
    const where = this.block[failure] < 0 ? "" : " in the replay";
    const tag = model.tags[this.tag[failure]] ? `, ${this.purpose(failure)}` : "";
    return `failed${where}: ${bytesText(this.bytes[failure])} on ${model.streamName(this.stream[failure])}${tag}`;
  }
}

/** The list of failures, and what chooses one of them. */
class FailureList {
  constructor() {
    /** The one that was gone to last. @type {number | null} */
    this.chosen = null;
    this.table = byId("failures-table");
  }

  /** Writes the rows: they never change. */
  write() {
    const { failures, model } = app;
    const tagged = model.tags.some((tag) => tag !== "");
    byId("failures-who").textContent = tagged ? "tag" : "thread";
    const rows = Array.from({ length: Math.min(failures.count, MOST_FAILURES) }, (_, at) => {
      const row = document.createElement("tr");
      const button = document.createElement("button");
      button.type = "button";
      button.title = `${exactText(failures.bytes[at])}, ${model.streamName(failures.stream[at])}, ${model.threadName(failures.thread[at])}, ${failures.purpose(at)}. Go there.`;
      button.append(durationText(failures.time[at]));
      const who = tagged ? failures.purpose(at) : model.threads[failures.thread[at]];
      const cells = [button, bytesText(failures.bytes[at]), String(failures.stream[at]), who].map((content, column) => {
        const cell = document.createElement("td");
        cell.append(content);
        if (column === 1 || column === 2) cell.className = "number";
        if (column === 3) cell.title = who;
        return cell;
      });
      row.append(...cells);
      row.addEventListener("click", () => this.choose(at));
      return row;
    });
    if (failures.count > MOST_FAILURES) {
      const cell = Object.assign(document.createElement("td"), { colSpan: 4, className: "aside", textContent: `and ${countText(failures.count - MOST_FAILURES)} more` });
      const row = document.createElement("tr");
      row.append(cell);
      rows.push(row);
    }
    this.table.replaceChildren(...rows);
  }

  /** Goes to the moment of one. @param {number} at */
  choose(at) {
    this.chosen = at;
    app.goTo(app.failures.step[at]);
    if (app.axis.revealValue(app.failures.values(app.axis.byTime)[at])) app.viewed();
    app.showSheet("failures");
    this.table.querySelectorAll("tr").forEach((row, i) => {
      row.setAttribute("aria-selected", String(i === at));
      if (i === at) row.scrollIntoView({ block: "nearest" });
    });
    app.changed("view");
  }

  /** Goes to the next one, or with -1 to the one before. @param {number} by */
  walk(by) {
    const { failures, moment } = app;
    if (failures.count === 0) return;
    const fits = this.chosen !== null && failures.step[this.chosen] === moment;
    const next = by > 0 ? lastAtMost(failures.step, moment) + 1 : lastAtMost(failures.step, moment - 1);
    const at = fits ? /** @type {number} */ (this.chosen) + by : next;
    this.choose((at + failures.count) % failures.count);
  }
}

/** Where a failure is drawn: how far the curve would have risen. @typedef {{ failure: number, x: number, from: number, to: number }} FailureMark */

/** The failures in view, the largest of each pixel. @param {BytesChart} chart @returns {FailureMark[]} */
function failureMarks(chart) {
  const { failures, axis, model } = app;
  const { plotWidth } = chart.surface;
  const values = failures.values(axis.byTime);
  /** @type {FailureMark[]} */
  const marks = [];
  let last = lastAtMost(values, axis.from - 1e-9);
  while (last + 1 < failures.count && values[last + 1] <= axis.to) {
    const x = ((values[last + 1] - axis.from) / (axis.to - axis.from)) * plotWidth;
    const until = Math.min(axis.to, axis.valueAt(x + 1, plotWidth));
    const first = last + 1;
    last = Math.max(first, lastAtMost(values, until));
    let failure = first;
    for (let i = first + 1; i <= last; i += 1) if (failures.bytes[i] > failures.bytes[failure]) failure = i;
    const live = model.live[failures.step[failure]] ?? 0;
    const [from, to] = [live, live + failures.bytes[failure]].map((bytes) => Math.min(chart.bottom, Math.max(FAILURE_TOP, chart.yOf(bytes))));
    marks.push({ failure, x: GUTTER + x, from, to });
  }
  return marks;
}

/** No mark is nearer to the top of the plot, so that each is seen whole. */
const FAILURE_TOP = 8;
const FAILURE_ARM = 4;

/** @param {BytesChart} chart */
function drawFailures(chart) {
  const { pen } = chart.surface;
  const { palette } = app;
  const marks = failureMarks(chart);
  pen.strokeStyle = palette.of("failure");
  pen.lineWidth = 1.25;
  pen.beginPath();
  for (const { x, from, to } of marks) {
    pen.moveTo(x, from);
    pen.lineTo(x, to);
  }
  pen.stroke();
  // First all rims, in the colour of the panel, so that each cross is seen on any curve and none is under another's rim.
  for (const [width, colour] of /** @type {[number, string][]} */ ([[5, "panel"], [2.25, "failure"]])) {
    pen.lineWidth = width;
    pen.strokeStyle = palette.of(colour);
    pen.beginPath();
    for (const { failure, x, to } of marks) {
      const arm = failure === app.failureList.chosen ? FAILURE_ARM + 1.5 : FAILURE_ARM;
      pen.moveTo(x - arm, to - arm);
      pen.lineTo(x + arm, to + arm);
      pen.moveTo(x + arm, to - arm);
      pen.lineTo(x - arm, to + arm);
    }
    pen.stroke();
  }
  pen.lineWidth = 1;
  return marks;
}
