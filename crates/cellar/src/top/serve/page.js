// Reads json/top, and draws what the screen of `cellar top` shows. Rates and averages come from the server; the charts of I/O and
// transactions begin when the page is opened.
"use strict";
const SERIES_MAX = 5;
let latest = null;
const readings = [];
const sorting = {};

const or = (format) => (value) => value === null || value === undefined ? "" : format(value);
const whole = (value) => value.toFixed(0);
const percent = (value) => value.toFixed(1);

// ---- tables that a click sorts ----

const label = (name, value, show = (text) => text ?? "") => ({ name, text: true, value, show });
const figure = (name, value, format) => ({ name, value, show: or(format) });

function compare(a, b) {
  const absent = (value) => value === null || value === undefined || value === "";
  if (absent(a) || absent(b)) return absent(a) - absent(b);
  return typeof a === "number" ? b - a : String(a).localeCompare(String(b));
}

function grid(id, columns, rows, name = () => "") {
  const sort = sorting[id];
  let shown = [...rows];
  if (sort) {
    shown.sort((a, b) => compare(sort.column.value(a), sort.column.value(b)));
    if (sort.reversed) shown.reverse();
  }
  table(id, columns, shown.map((row) => columns.map((column) => column.show(column.value(row), row))));
  const lines = [...$(id).rows];
  lines[0].querySelectorAll("th").forEach((head, index) => {
    const column = columns[index];
    const isSorted = sort?.column.name === column.name;
    if (isSorted) head.setAttribute("aria-sort", Boolean(column.text) === sort.reversed ? "descending" : "ascending");
    head.tabIndex = 0;
    const choose = () => {
      sorting[id] = { column, reversed: isSorted && !sort.reversed };
      draw();
    };
    head.addEventListener("click", choose);
    head.addEventListener("keydown", (event) => { if (event.key === "Enter") choose(); });
  });
  shown.forEach((row, index) => { lines[index + 1].className = name(row); });
}

function link(shown, action) {
  const node = element("button", { type: "button" }, shown);
  node.addEventListener("click", action);
  return node;
}

function waitClass(name) {
  if (!name) return "";
  const node = element("span");
  node.append(element("i", { class: `class class-${latest.wait_classes.indexOf(name)}` }), name);
  return node;
}

// ---- details ----

function detail(title, text, sessions) {
  $("detail-title").textContent = title;
  $("detail-text").textContent = text ?? "";
  table("detail-rows", SESSIONS.slice(0, -1), sessions.map((row) => SESSIONS.slice(0, -1).map((column) => column.show(column.value(row), row))));
  if (!$("detail").open) $("detail").showModal();
}

function showStatement(row) {
  const runs = (session) => row.sql_id === null ? session.query === row.text : session.query_id === row.query_id && session.database === row.database;
  detail(row.sql_id ? `SQL Id ${row.sql_id}` : "Statement", row.text, latest.sessions.filter(runs));
}

// The session, those that it waits for, and those that wait for it.
function showSession(row) {
  const isRelated = (other) => other.pid === row.pid || row.blockers.includes(other.pid) || other.blockers.includes(row.pid);
  detail(`Session ${row.pid}`, row.query, latest.sessions.filter(isRelated));
}

// ---- the tables ----

const STATEMENTS = [
  label("SQL Id", (row) => row.sql_id ?? "", (id, row) => link(id || "(not parsed)", () => showStatement(row))),
  figure("active sessions", (row) => row.active_sessions, plain),
  label("mostly", (row) => row.wait_class, waitClass),
  figure("calls/s", (row) => row.calls_per_second, count),
  figure("mean", (row) => row.mean_seconds, seconds),
  figure("CPU cores", (row) => row.cpu_cores, plain),
  figure("rows/s", (row) => row.rows_per_second, count),
  figure("blocks read/s", (row) => row.blocks_read_per_second, count),
  figure("WAL/s", (row) => row.wal_bytes_per_second, bytes),
  figure("offload-eligible/s", (row) => row.eligible_bytes_per_second, bytes),
  label("database", (row) => row.database),
  label("statement", (row) => row.text),
];
const waitEvent = (row) => row.wait_event ? `${row.wait_event_type}:${row.wait_event}` : row.is_active ? "CPU" : "";
const SESSIONS = [
  figure("pid", (row) => row.pid, (pid) => link(whole(pid), () => showSession(latest.sessions.find((row) => row.pid === pid)))),
  label("database", (row) => row.database),
  label("role", (row) => row.role),
  label("application", (row) => row.application || row.backend_type),
  label("consumer group", (row) => row.consumer_group),
  label("state", (row) => row.state),
  label("wait class", (row) => row.is_active ? row.wait_class : "", waitClass),
  label("wait event", waitEvent),
  figure("since", (row) => row.state === "active" ? row.query_age_seconds : null, seconds),
  figure("transaction", (row) => row.xact_age_seconds, seconds),
  label("blocked by", (row) => row.blockers.join(", ")),
  label("statement", (row) => row.query),
];
const commits = (row) => row.transactions_per_second === null ? null : row.transactions_per_second - row.rollbacks_per_second;
const DATABASES = [
  label("database", (row) => row.database),
  figure("sessions", (row) => row.sessions, whole),
  figure("active", (row) => row.active_sessions, plain),
  figure("commits/s", commits, count),
  figure("rollbacks/s", (row) => row.rollbacks_per_second, count),
  figure("blocks read/s", (row) => row.blocks_read_per_second, count),
  figure("hit %", (row) => row.hit_percent, percent),
  figure("rows read/s", (row) => row.rows_read_per_second, count),
  figure("rows written/s", (row) => row.rows_written_per_second, count),
  figure("temporary files/s", (row) => row.temp_bytes_per_second, bytes),
  figure("cell I/O/s", (row) => row.cell_bytes_per_second, bytes),
  figure("deadlocks", (row) => row.deadlocks, whole),
];
const CELL_IO = [
  label("database", (row) => row.database),
  label("class", (row) => row.class),
  label("kind", (row) => row.kind),
  figure("operations/s", (row) => row.operations_per_second, count),
  figure("bytes/s", (row) => row.bytes_per_second, bytes),
  figure("returned/s", (row) => row.returned_bytes_per_second, bytes),
  figure("mean", (row) => row.mean_seconds, seconds),
  figure("p50", (row) => row.p50_seconds, seconds),
  figure("p95", (row) => row.p95_seconds, seconds),
  figure("p99", (row) => row.p99_seconds, seconds),
  label("cell", (row) => row.cell),
];
const CELLS = [
  label("cell", (row) => row.name),
  label("version", (row) => row.version),
  label("mount", (row) => row.mount),
  figure("up", (row) => row.uptime_seconds, duration),
  figure("page cache", (row) => row.cache_used_bytes, bytes),
  figure("of", (row) => row.cache_capacity_bytes, bytes),
  figure("memory", (row) => row.memory_used_bytes, bytes),
  figure("limit", (row) => row.memory_limit_bytes, bytes),
  figure("redo logs", (row) => row.redo_log_bytes, bytes),
  figure("flash cache", (row) => row.flash_cache?.used_bytes, bytes),
  figure("hits", (row) => row.flash_cache?.hit_percent, percent),
  figure("IORM wait a request", (row) => row.iorm_wait_per_request_seconds, duration),
  figure("checkpoints queued", (row) => row.checkpoints_queued, whole),
];
const DISKS = [
  label("cell disk", (row) => row.path),
  label("cell", (row) => row.cell),
  figure("size", (row) => row.size_bytes, bytes),
  figure("available", (row) => row.available_bytes, bytes),
  label("in use", (row) => 1 - row.available_bytes / row.size_bytes, (share, row) => meter(row.size_bytes - row.available_bytes, row.size_bytes)),
  figure("reserve", (row) => row.reserve_bytes, bytes),
  figure("reserve free", (row) => row.reserve_free_bytes, bytes),
  figure("I/O errors", (row) => row.io_errors, whole),
];

// ---- charts ----

function activityChart(to) {
  const all = to.wait_classes.map((name, index) => ({ name, style: `class-${index}`, values: to.activity.map((slot) => slot[index]) }));
  const cpus = to.server?.cpus ?? null;
  const busiest = Math.max(1, ...to.activity.map((slot) => slot.reduce((a, b) => a + b, 0)));
  // The line of the CPUs is part of the chart unless it would flatten the sessions.
  const mark = cpus !== null && cpus <= 4 * busiest ? { value: cpus, name: `${cpus} CPUs` } : null;
  chart("chart-activity", all.filter((one) => one.values.some((value) => value > 0)), plain, true, mark ? 1.1 * mark.value : 1, mark);
}

// Sums of a figure of the rows of each reading, by name; the names with the greatest sums.
function history(rows, name, value) {
  const sums = readings.map((reading) => {
    const sum = new Map();
    for (const row of rows(reading)) sum.set(name(row), (sum.get(name(row)) ?? 0) + (value(row) ?? 0));
    return sum;
  });
  const totals = new Map();
  for (const sum of sums) for (const [at, one] of sum) totals.set(at, (totals.get(at) ?? 0) + one);
  const names = [...totals.keys()].filter((at) => totals.get(at) > 0).sort((a, b) => totals.get(b) - totals.get(a)).slice(0, SERIES_MAX);
  return names.map((at) => ({ name: at, values: sums.map((sum) => sum.get(at) ?? 0) }));
}

// ---- the page ----

function draw() {
  const to = latest;
  const server = to.server;
  $("name").textContent = server ? server.database : "no server";
  document.title = server ? `${server.database} – cellar top` : "cellar top";
  $("facts").textContent = server ? `${server.address}, PostgreSQL ${server.version}${server.is_standby ? ", standby" : ""}, up ${duration(server.uptime_seconds)}` : "";
  $("missing").replaceChildren(...to.missing.map((message) => element("li", {}, `missing: ${message}`)));
  const average = to.active_sessions.reduce((sum, row) => sum + row.average, 0);
  $("activity-title").textContent = `Active sessions by wait class: ${plain(average)} on average in the last minute`;
  activityChart(to);
  const hasCells = readings.some((reading) => reading.cell_io.length > 0) || to.cells.length > 0;
  for (const id of ["figure-io-kind", "figure-io-database", "cells"]) $(id).hidden = !hasCells;
  chart("chart-io-kind", history((reading) => reading.cell_io, (row) => row.kind, (row) => row.bytes_per_second), bytes, true);
  chart("chart-io-database", history((reading) => reading.cell_io, (row) => row.database, (row) => row.bytes_per_second), bytes, true);
  chart("chart-transactions", history((reading) => reading.databases, (row) => row.database, (row) => row.transactions_per_second), count, true);
  const rate = to.rate_seconds === null ? "" : `, rates over ${seconds(to.rate_seconds)}`;
  $("statements-note").textContent = `Sampled activity of the last minute${rate}. A click on a SQL Id shows the text and the sessions.`;
  $("sessions-note").textContent = `Active, blocked, or in a transaction: ${to.sessions.length} of ${to.session_count} processes.`;
  grid("statements", STATEMENTS, to.statements);
  grid("sessions", SESSIONS, to.sessions, (row) => row.blockers.length > 0 ? "blocked" : "");
  grid("databases", DATABASES, to.databases);
  grid("cell-io", CELL_IO, to.cell_io.filter((row) => row.operations_per_second !== 0));
  grid("cell-states", CELLS, to.cells);
  grid("disks", DISKS, to.cells.flatMap((cell) => cell.disks.map((disk) => ({ ...disk, cell: cell.name }))));
  for (const node of document.querySelectorAll("td.text")) node.title = node.textContent;
}

async function read() {
  try {
    const response = await fetch("json/top", { cache: "no-store", signal: AbortSignal.timeout(10000) });
    if (!response.ok) throw new Error(response.status === 404 ? "cellar top was restarted: open its new address" : `status ${response.status}`);
    const reading = await response.json();
    if (reading.schema_version !== 1) throw new Error("cellar top has another version than this page: reload");
    latest = reading;
    axis.periodMs = reading.interval_seconds * 1000;
    // The chart grows with what there is, up to the 600 readings that the server keeps.
    axis.points = Math.min(600, Math.max(1, Math.ceil(reading.activity.length / 150)) * 150);
    readings.push({ cell_io: reading.cell_io, databases: reading.databases });
    while (readings.length > axis.points) readings.shift();
    // A selection or an open dialog stays as it is.
    if (!$("detail").open) draw();
    show(`at ${new Date(reading.time * 1000).toLocaleTimeString()}, every ${seconds(reading.interval_seconds)}`, false);
  } catch (error) {
    show(`no answer from cellar top: ${error.message}`, true);
  }
}

run(read);
