// @ts-check
// Numbers as people read them.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/** The unit in which a number of bytes has one to four digits before the point. @param {number} bytes */
function unitOf(bytes) {
  let at = 0;
  for (let rest = Math.abs(bytes); rest >= 1024 && at + 1 < UNITS.length; rest /= 1024) at += 1;
  return at;
}

/** `3.04 GiB`: three digits, whole bytes. @param {number} bytes */
function bytesText(bytes) {
  const unit = unitOf(bytes);
  const amount = bytes / 1024 ** unit;
  const digits = unit === 0 || amount >= 100 ? 0 : amount >= 10 ? 1 : 2;
  return `${amount.toFixed(digits)} ${UNITS[unit]}`;
}

/** `32 KiB`: for round numbers, on axes. @param {number} bytes */
function roundText(bytes) {
  const unit = unitOf(bytes);
  return `${+(bytes / 1024 ** unit).toFixed(2)} ${UNITS[unit]}`;
}

/** `3,264,348,160 B` where that says more than `bytesText`. @param {number} bytes */
function exactText(bytes) {
  return bytes < 1024 ? bytesText(bytes) : `${bytesText(bytes)} (${countText(bytes)} B)`;
}

/** `112,844`. @param {number} count */
function countText(count) {
  return String(Math.round(count)).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

/** `12 ms`, `3.25 s`, `1 h 04 min`. @param {number} microseconds */
function durationText(microseconds) {
  const us = Math.abs(microseconds);
  const sign = microseconds < 0 ? "−" : "";
  if (us < 1000) return `${sign}${+us.toFixed(us < 10 ? 2 : 0)} µs`;
  if (us < 1e6) return `${sign}${+(us / 1e3).toFixed(us < 1e5 ? 2 : 1)} ms`;
  if (us < 60e6) return `${sign}${(us / 1e6).toFixed(us < 10e6 ? 3 : 2)} s`;
  const seconds = Math.floor(us / 1e6);
  const two = (/** @type {number} */ number) => String(number).padStart(2, "0");
  if (seconds < 3600) return `${sign}${Math.floor(seconds / 60)} min ${two(seconds % 60)} s`;
  return `${sign}${Math.floor(seconds / 3600)} h ${two(Math.floor(seconds / 60) % 60)} min`;
}

/** Time of day: `09:45:40.506689`. @param {number} microseconds since midnight */
function clockText(microseconds) {
  const two = (/** @type {number} */ number) => String(number).padStart(2, "0");
  const seconds = Math.floor(microseconds / 1e6);
  const clock = `${two(Math.floor(seconds / 3600) % 24)}:${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`;
  return `${clock}.${String(microseconds % 1e6).padStart(6, "0")}`;
}

/** `2026-01-01 00:00:00 UTC`. @param {number} microseconds since 1970 */
function dateText(microseconds) {
  const date = new Date(microseconds / 1000);
  // A file may say any time; browsers know those of some hundred thousand years.
  return Number.isNaN(date.getTime()) ? "at a time unknown" : `${date.toISOString().replace("T", " ").slice(0, 19)} UTC`;
}

/** `1 block`, `2 blocks`. @param {number} count @param {string} noun */
function plural(count, noun) {
  return `${countText(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** Round steps for an axis that ends at `most`, about `wanted` of them. @param {number} most @param {number} wanted */
function roundStep(most, wanted) {
  const rough = most / Math.max(1, wanted);
  if (!(rough > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough) ?? rough;
}

/** Round steps in bytes: 1, 2, 5, 10, 20, 50, 100, 200, 500 of a unit. @param {number} most @param {number} wanted */
function roundBytes(most, wanted) {
  const rough = Math.max(1, most / Math.max(1, wanted));
  const unit = 1024 ** unitOf(rough);
  const steps = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
  return (steps.find((step) => step >= rough / unit) ?? 1024) * unit;
}
