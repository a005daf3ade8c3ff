// What is wrong with how the page is laid out now: a list of sentences.
(() => {
  const wrong = [];
  const name = (part) => (part.id ? `#${part.id}` : `${part.tagName.toLowerCase()}.${part.className} "${part.textContent.trim().slice(0, 30)}"`);
  const seen = (part) => part.checkVisibility({ visibilityProperty: true }) && part.getBoundingClientRect().width > 0;
  const boxOf = (part) => part.getBoundingClientRect();
  const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 0.5 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 0.5;
  const inside = (part, whole) => part.left >= whole.left - 0.5 && part.right <= whole.right + 0.5 && part.top >= whole.top - 0.5 && part.bottom <= whole.bottom + 0.5;

  const page = document.documentElement;
  if (page.scrollWidth > page.clientWidth) wrong.push(`the page is ${page.scrollWidth} wide and the window ${page.clientWidth}`);
  const within = { left: 0, right: page.clientWidth, top: -window.scrollY, bottom: document.body.scrollHeight - window.scrollY };
  const panels = [...document.querySelectorAll(".bar, .facts, .notes, .panel")].filter(seen);
  panels.forEach((panel, at) => {
    if (!inside(boxOf(panel), within)) wrong.push(`${name(panel)} is not within the page`);
    for (const other of panels.slice(at + 1)) if (meet(boxOf(panel), boxOf(other))) wrong.push(`${name(panel)} and ${name(other)} overlap`);
    if (panel.matches(".panel") && panel.scrollHeight > panel.clientHeight + 1) wrong.push(`${name(panel)} has ${panel.scrollHeight} pixels of content in ${panel.clientHeight}`);
  });
  // What stands beside each other does not lie on each other, and stays in its panel.
  for (const row of document.querySelectorAll(".bar, .head, .scrub, .facts, .tools, .legend, #time, aside, .tabs")) {
    const parts = [...row.children].filter((part) => seen(part) && getComputedStyle(part).position !== "absolute");
    parts.forEach((part, at) => {
      for (const other of parts.slice(at + 1)) if (meet(boxOf(part), boxOf(other))) wrong.push(`${name(part)} and ${name(other)} overlap`);
    });
  }
  const scrolls = (part) => ["auto", "scroll"].includes(getComputedStyle(part).overflowY);
  for (const part of document.querySelectorAll("body *")) {
    if (!seen(part) || part.closest("#tip, #hits, dialog, #veil")) continue;
    const style = getComputedStyle(part);
    const words = [...part.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
    const control = part.matches("button, select, input, canvas");
    if (!words && !control) continue;
    // What is in a list that scrolls may be below or above what is seen of it, and never beside it.
    let scroller = part.parentElement;
    while (scroller && !scrolls(scroller)) scroller = scroller.parentElement;
    const panel = part.closest(".panel, .bar, .facts, .notes");
    const [box, whole] = [boxOf(part), boxOf(scroller && scroller !== page && scroller !== document.body ? scroller : panel ?? page)];
    const beside = box.left < whole.left - 0.5 || box.right > whole.right + 0.5;
    const above = box.top < whole.top - 0.5 || box.bottom > whole.bottom + 0.5;
    if (panel && (beside || (above && !(scroller && panel.contains(scroller))))) wrong.push(`${name(part)} is cut off by ${name(panel)}`);
    // Words that do not fit end in dots, and can then be read in full elsewhere.
    const short = part.scrollWidth > part.clientWidth + 1 || part.scrollHeight > part.clientHeight + 2;
    const dots = style.textOverflow === "ellipsis" || style.webkitLineClamp !== "none";
    const told = part.closest("[title]") !== null;
    if (words && style.overflow !== "visible" && short && !(dots && told)) wrong.push(`the words of ${name(part)} are cut off`);
    if (words && style.display !== "inline" && style.overflow === "visible" && part.scrollWidth > part.clientWidth + 1) wrong.push(`the words of ${name(part)} run out of it`);
    if (control && part.matches("button") && part.scrollWidth > part.clientWidth + 1) wrong.push(`${name(part)} is wider than its room`);
  }
  for (const legend of document.querySelectorAll(".legend")) {
    if (seen(legend) && (legend.scrollHeight > legend.clientHeight + 1 || legend.scrollWidth > legend.clientWidth + 1)) wrong.push(`${name(legend)} is cut off`);
  }
  // All plots over time share one axis.
  const plots = [...document.querySelectorAll("#time .plot canvas")].filter(seen).map(boxOf);
  for (const plot of plots) if (plot.x !== plots[0].x || plot.width !== plots[0].width) wrong.push(`plots are ${plots.map((plot) => `${plot.x}+${plot.width}`).join(", ")} wide`);
  for (const canvas of document.querySelectorAll(".plot canvas")) {
    const box = boxOf(canvas);
    if (seen(canvas) && (canvas.width !== Math.round(box.width * devicePixelRatio) || canvas.height !== Math.round(box.height * devicePixelRatio))) wrong.push(`the canvas of ${name(canvas.parentElement)} has ${canvas.width}x${canvas.height} dots for ${box.width}x${box.height} pixels`);
    if (seen(canvas) && box.height < 24) wrong.push(`${name(canvas.parentElement)} is only ${box.height} high`);
  }

  // Contrast, as the guidelines for the web count it.
  const parts = (colour) => colour.match(/[\d.]+/g).map(Number);
  const light = (colour) => {
    const [red, green, blue] = colour.map((part) => (part / 255 <= 0.03928 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const groundOf = (part) => {
    for (let at = part; at; at = at.parentElement) {
      const [red, green, blue, opacity = 1] = parts(getComputedStyle(at).backgroundColor);
      if (opacity === 1) return [red, green, blue];
    }
    return [255, 255, 255];
  };
  let least = 21;
  for (const part of document.querySelectorAll("body *")) {
    const words = [...part.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim()) || part.matches("input[type=search]");
    if (!words || !seen(part) || part.disabled || part.closest("#veil")) continue;
    const styles = [getComputedStyle(part)];
    if (part.matches("input")) styles.push(getComputedStyle(part, "::placeholder"));
    for (const style of styles) {
      const [a, b] = [light(parts(style.color).slice(0, 3)), light(groundOf(part))];
      const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      least = Math.min(least, ratio);
      if (ratio < 4.5) wrong.push(`the words of ${name(part)} have a contrast of ${ratio.toFixed(2)}`);
    }
  }
  if (least === 21) wrong.push("no words were found");
  return [...new Set(wrong)];
})()
