// What the pages of a cell and of `cellar top --serve` share: figures, charts, tables, and the loop that reads. Every text is set
// with textContent, so that a name in a document is never parsed as HTML.
"use strict";
const SVG = "http://www.w3.org/2000/svg";
// The time axis of all charts of a page.
const axis = { points: 150, periodMs: 2000 };
let paused = false;

const $ = (id) => document.getElementById(id);

function element(name, attributes = {}, text = "") {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.textContent = text;
  return node;
}

function drawn(name, attributes, text = "") {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.textContent = text;
  return node;
}

// ---- figures ----

function scaled(value, units, step) {
  let unit = 0;
  while (Math.abs(value) >= step && unit + 1 < units.length) { value /= step; unit += 1; }
  const digits = unit === 0 && Number.isInteger(value) ? 0 : value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return value.toFixed(digits) + units[unit];
}
const bytes = (value) => scaled(value, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"], 1024);
const count = (value) => scaled(value, ["", " k", " M", " G"], 1000);
const plain = (value) => value >= 100 ? value.toFixed(0) : value.toFixed(value >= 10 ? 1 : 2);
function seconds(value) {
  if (value === null || value === undefined) return "";
  if (value === 0) return "0 s";
  if (value === Infinity) return "> 33 s";
  if (value < 0.001) return `${plain(value * 1e6)} µs`;
  if (value < 1) return `${plain(value * 1e3)} ms`;
  return `${plain(value)} s`;
}
function duration(value) {
  const minutes = Math.floor(value / 60);
  if (minutes < 1) return `${Math.floor(value)} s`;
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 1440) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.floor(minutes / 1440)} d ${Math.floor(minutes / 60) % 24} h`;
}

// ---- charts ----

const WIDTH_MIN = 280, HEIGHT = 190, LEFT = 70, RIGHT = 8, TOP = 8, BOTTOM = 22;
// Distances of the times below a chart, in seconds.
const TICKS = [1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400];

const style = (one, number) => one.style ?? `series-${number}`;

function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 1.5, 2, 3, 4, 5, 8, 10].find((step) => step * power >= value * 0.999999);
}

// Series: { name, values, style } with one value per reading; null means that nothing was measured. The axis reaches "least"; "mark"
// is { value, name } of a line across the chart.
function chart(id, series, format, stacked, least = 0, mark = null) {
  const width = Math.max($(id).clientWidth, WIDTH_MIN);
  const steps = axis.points - 1;
  const length = series[0]?.values.length ?? 0;
  const x = (index) => LEFT + (width - LEFT - RIGHT) * (steps - length + index + 0.5) / steps;
  let greatest = 0;
  for (let index = 0; index < length; index += 1) {
    const values = series.map((one) => one.values[index] ?? 0);
    greatest = Math.max(greatest, stacked ? values.reduce((a, b) => a + b, 0) : Math.max(...values));
  }
  // Grid lines of sizes are multiples of a binary unit.
  const unit = format === bytes && greatest >= 1 ? 1024 ** Math.floor(Math.log(greatest) / Math.log(1024)) : 1;
  greatest = Math.max(roundUp(greatest / unit) * unit, least);
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - Math.min(value / greatest, 1));
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img" });
  for (let step = 0; step <= 4; step += 1) {
    const value = greatest * step / 4;
    svg.append(drawn("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
      drawn("text", { class: "axis", x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, format(value)));
  }
  const range = steps * axis.periodMs / 1000;
  const slot = TICKS.find((step) => range / step <= 6) ?? TICKS.at(-1);
  for (let ago = slot; ago < range - slot / 4; ago += slot) {
    const at = width - RIGHT - (width - LEFT - RIGHT) * ago / range;
    svg.append(drawn("text", { class: "axis", x: at, y: HEIGHT - 6, "text-anchor": "middle" }, `−${duration(ago)}`));
  }
  const below = new Array(length).fill(0);
  series.forEach((one, number) => {
    if (stacked) {
      const lower = [...below];
      one.values.forEach((value, index) => { below[index] += value ?? 0; });
      if (length > 0) {
        const upper = below.map((value, index) => `${x(index).toFixed(1)} ${y(value).toFixed(1)}`);
        const back = lower.map((value, index) => `${x(index).toFixed(1)} ${y(value).toFixed(1)}`).reverse();
        svg.append(drawn("path", { class: style(one, number), d: `M${upper.join("L")}L${back.join("L")}Z` }));
      }
      return;
    }
    let path = "", pen = "M";
    one.values.forEach((value, index) => {
      if (value === null) { pen = "M"; return; }
      path += `${pen}${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
      // A point without neighbours is drawn as a short line.
      if (pen === "M") path += "h0.5";
      pen = "L";
    });
    if (path) svg.append(drawn("path", { class: `line ${style(one, number)}`, d: path }));
  });
  if (mark !== null && mark.value <= greatest) {
    svg.append(drawn("line", { class: "mark", x1: LEFT, x2: width - RIGHT, y1: y(mark.value), y2: y(mark.value) }),
      drawn("text", { class: "axis", x: LEFT + 4, y: y(mark.value) - 3 }, mark.name));
  }
  const legend = element("div", { class: "legend" });
  series.forEach((one, number) => {
    const entry = element("span");
    const last = one.values.at(-1);
    entry.append(element("i", { class: style(one, number) }), `${one.name} ${last === undefined || last === null ? "" : format(last)}`);
    legend.append(entry);
  });
  $(id).replaceChildren(svg, legend);
}

// ---- tables ----

function table(id, columns, rows) {
  const head = element("tr");
  for (const column of columns) head.append(element("th", column.text ? { class: "text", scope: "col" } : { scope: "col" }, column.name));
  const body = rows.map((row) => {
    const line = element("tr");
    row.forEach((cell, index) => {
      const node = element("td", columns[index].text ? { class: "text" } : {});
      node.append(cell instanceof Node ? cell : String(cell));
      line.append(node);
    });
    return line;
  });
  $(id).replaceChildren(head, ...body);
}
const text = (name) => ({ name, text: true });
const number = (name) => ({ name });

function meter(used, limit) {
  const node = element("meter", { min: 0, max: 1, value: limit > 0 ? used / limit : 0 });
  node.title = limit > 0 ? `${(100 * used / limit).toFixed(0)} %` : "";
  return node;
}

// ---- the loop ----

function show(message, isBad) {
  $("state").textContent = message;
  $("state").classList.toggle("bad", isBad);
}

// Calls read() each period while the page is visible.
async function run(read) {
  $("pause").addEventListener("click", () => {
    paused = !paused;
    $("pause").textContent = paused ? "Continue" : "Pause";
    if (paused) show("paused", false);
  });
  for (;;) {
    if (!paused && !document.hidden) await read();
    await new Promise((done) => setTimeout(done, axis.periodMs));
  }
}
