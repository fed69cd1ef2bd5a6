// Reads /json/metrics every two seconds, computes rates between two readings, and draws charts and tables.
"use strict";
const WINDOW = 30;
const KINDS = ["single-block read", "multiblock read", "data file write", "WAL write", "sync"];
const readings = [];

// ---- readings ----

function key(labels, names) {
  return names.map((name) => labels[name] ?? "").join("\u0000");
}

// Sums of the samples of a metric by the values of some labels.
function sums(reading, name, names = [], filter = () => true) {
  const result = new Map();
  for (const sample of reading.metrics.get(name)?.samples ?? []) {
    if (!filter(sample.labels)) continue;
    const at = key(sample.labels, names);
    const old = result.get(at);
    if (sample.buckets === undefined) {
      result.set(at, (old ?? 0) + sample.value);
    } else if (old === undefined) {
      result.set(at, { count: sample.count, sum: sample.sum, buckets: sample.buckets.map((bucket) => [...bucket]) });
    } else {
      old.count += sample.count;
      old.sum += sample.sum;
      old.buckets.forEach((bucket, index) => { bucket[1] += sample.buckets[index][1]; });
    }
  }
  return result;
}
const total = (reading, name, filter) => sums(reading, name, [], filter).get("") ?? 0;
const elapsed = (from, to) => Math.max((to.time_ms - from.time_ms) / 1000, 0.001);

function rates(from, to, name, names = [], filter) {
  const before = sums(from, name, names, filter);
  const result = new Map();
  for (const [at, value] of sums(to, name, names, filter)) result.set(at, Math.max(value - (before.get(at) ?? 0), 0) / elapsed(from, to));
  return result;
}
const rate = (from, to, name, filter) => rates(from, to, name, [], filter).get("") ?? 0;

function increase(from, to) {
  if (to === undefined) return null;
  const before = (index) => from?.buckets[index][1] ?? 0;
  const buckets = to.buckets.map(([bound, number], index) => [bound, number - before(index)]);
  return { count: to.count - (from?.count ?? 0), sum: to.sum - (from?.sum ?? 0), buckets };
}
function quantile(histogram, share) {
  if (!histogram || histogram.count <= 0) return null;
  for (const [bound, number] of histogram.buckets) if (number >= share * histogram.count) return bound;
  return Infinity;
}
const mean = (histogram) => histogram && histogram.count > 0 ? histogram.sum / histogram.count : null;
function series(names, value) {
  return names.map((name) => ({ name, values: readings.slice(1).map((reading, index) => value(name, readings[index], reading)) }));
}

// ---- tables ----

function fileTable(from, to) {
  const names = ["database", "kind"];
  const operations = rates(from, to, "cellar_file_operations_total", names);
  const moved = rates(from, to, "cellar_file_bytes_total", names);
  const before = sums(from, "cellar_file_operation_seconds", names);
  const after = sums(to, "cellar_file_operation_seconds", names);
  const rows = [...operations.keys()].filter((at) => operations.get(at) > 0).sort((a, b) => operations.get(b) - operations.get(a)).map((at) => {
    const [database, kind] = at.split("\u0000");
    const latency = increase(before.get(at), after.get(at));
    return [database, kind, count(operations.get(at)), bytes(moved.get(at) ?? 0), seconds(mean(latency)),
      seconds(quantile(latency, 0.5)), seconds(quantile(latency, 0.95)), seconds(quantile(latency, 0.99))];
  });
  table("files", [text("database"), text("kind"), number("operations/s"), number("bytes/s"), number("mean"), number("p50"),
    number("p95"), number("p99")], rows);
}

function fileTypeTable(from, to) {
  const names = ["type", "database", "kind"];
  const operations = rates(from, to, "cellar_file_type_operations_total", names);
  const moved = rates(from, to, "cellar_file_type_bytes_total", names);
  const times = rates(from, to, "cellar_file_type_seconds_total", names);
  const weight = (at) => [moved.get(at) ?? 0, operations.get(at)];
  const more = (a, b) => weight(b)[0] - weight(a)[0] || weight(b)[1] - weight(a)[1];
  const rows = [...operations.keys()].filter((at) => operations.get(at) > 0).sort(more).map((at) => [...at.split("\u0000"),
    count(operations.get(at)), bytes(moved.get(at) ?? 0), seconds((times.get(at) ?? 0) / operations.get(at))]);
  table("file-types", [text("file type"), text("database"), text("kind"), number("operations/s"), number("bytes/s"), number("mean")], rows);
}

function scanTable(from, to) {
  const per = (name) => rates(from, to, `cellar_smart_scan_${name}_total`, ["database"]);
  const [scans, eligible, saved, returned, rows] = [rates(from, to, "cellar_smart_scans_total", ["database"]), per("eligible_bytes"),
    per("saved_by_storage_index_bytes"), per("returned_bytes"), per("rows_scanned")];
  const served = sums(to, "cellar_smart_scans_total", ["database"]);
  const lines = [...scans.keys()].map((at) => [at, served.get(at), count(scans.get(at)), bytes(eligible.get(at) ?? 0),
    bytes(saved.get(at) ?? 0), bytes(returned.get(at) ?? 0), count(rows.get(at) ?? 0)]);
  table("scans", [text("database"), number("since start"), number("scans/s"), number("eligible/s"), number("saved by storage index/s"),
    number("returned/s"), number("rows scanned/s")], lines);
}

function diskTables(from, to) {
  const of = (name) => sums(to, name, ["disk"]);
  const [size, available, reserve, free] = [of("cellar_disk_size_bytes"), of("cellar_disk_available_bytes"),
    of("cellar_disk_reserve_bytes"), of("cellar_disk_reserve_free_bytes")];
  table("disks", [text("cell disk"), number("size"), number("available"), number("reserve"), number("reserve free"), text("in use")],
    [...size.keys()].map((at) => [at, bytes(size.get(at)), bytes(available.get(at)), bytes(reserve.get(at)), bytes(free.get(at)),
      meter(size.get(at) - available.get(at), size.get(at))]));
  const names = ["disk", "operation"];
  const operations = rates(from, to, "cellar_disk_operations_total", names);
  const moved = rates(from, to, "cellar_disk_bytes_total", names);
  const errors = sums(to, "cellar_disk_errors_total", names);
  const before = sums(from, "cellar_disk_operation_seconds", names);
  const after = sums(to, "cellar_disk_operation_seconds", names);
  table("disk-io", [text("cell disk"), text("operation"), number("operations/s"), number("bytes/s"), number("mean"), number("p99"),
    number("errors since start")], [...operations.keys()].map((at) => {
    const latency = increase(before.get(at), after.get(at));
    return [...at.split("\u0000"), count(operations.get(at)), bytes(moved.get(at) ?? 0), seconds(mean(latency)),
      seconds(quantile(latency, 0.99)), errors.get(at) ?? 0];
  }));
}

function memoryTable(to) {
  const used = sums(to, "cellar_memory_used_bytes", ["kind"]);
  const limit = sums(to, "cellar_memory_limit_bytes", ["kind"]);
  table("memory", [text("kind"), number("in use"), number("limit"), text("")],
    [...used.keys()].map((at) => [at.replaceAll("_", " "), bytes(used.get(at)), bytes(limit.get(at)), meter(used.get(at), limit.get(at))]));
}

function backlogTable(from, to) {
  const hits = rate(from, to, "cellar_page_cache_hits_total"), misses = rate(from, to, "cellar_page_cache_misses_total");
  table("backlog", [text(""), number("")], [
    ["regions that scans found in the page cache", hits + misses > 0 ? `${(100 * hits / (hits + misses)).toFixed(1)} %` : "no scan"],
    ["page cache evictions/s", count(rate(from, to, "cellar_page_cache_evictions_total"))],
    ["redo logs", bytes(total(to, "cellar_redo_log_bytes"))],
    ["longest redo log", bytes(total(to, "cellar_redo_log_longest_bytes"))],
    ["checkpoints queued", total(to, "cellar_checkpoints_queued")],
    ["failed metadata transactions since start", total(to, "cellar_metadata_commit_failures_total")],
  ]);
}

function warnings(from, to) {
  const found = [];
  const add = (condition, message) => { if (condition) found.push(element("li", {}, message)); };
  const of = (name) => sums(to, name, ["disk"]);
  const [size, available, reserve, free] = [of("cellar_disk_size_bytes"), of("cellar_disk_available_bytes"),
    of("cellar_disk_reserve_bytes"), of("cellar_disk_reserve_free_bytes")];
  for (const disk of size.keys()) {
    add(free.get(disk) < reserve.get(disk), `The reserve of ${disk} is in use: free space at once.`);
    add(free.get(disk) >= reserve.get(disk) && available.get(disk) < 0.05 * size.get(disk), `Less than 5 % of ${disk} is available.`);
  }
  const io = (labels) => labels.error === "io";
  add(total(to, "cellar_disk_errors_total", io) > 0, "Operations on cell disks failed since the start: see the cell's log.");
  add(rate(from, to, "cellar_metadata_commit_failures_total") > 0, "Metadata transactions fail: new files are not durable.");
  $("warnings").replaceChildren(...found);
}

// ---- the page ----

function draw() {
  const to = readings.at(-1);
  const info = to.metrics.get("cellar_cell_info")?.samples[0]?.labels ?? {};
  document.title = `Cell ${info.name}`;
  $("name").textContent = `Cell ${info.name}`;
  const started = total(to, "cellar_start_time_seconds");
  $("facts").textContent = `version ${info.version}, mounted on ${info.mount}, up ${duration(to.time_ms / 1000 - started)}`;
  // With a single reading, everything since the start is the window.
  const from = readings.length > 1 ? readings[Math.max(0, readings.length - 1 - WINDOW)] : { time_ms: started * 1000, metrics: new Map() };
  const kind = (name) => (labels) => labels.kind === name;
  const writes = KINDS.slice(0, 4);
  chart("chart-bytes", series(writes, (name, a, b) => rate(a, b, "cellar_file_bytes_total", kind(name))), bytes, true);
  chart("chart-operations", series(KINDS, (name, a, b) => rate(a, b, "cellar_file_operations_total", kind(name))), count, true);
  const times = (reading, name) => sums(reading, "cellar_file_operation_seconds", ["kind"]).get(name);
  chart("chart-latency", series(KINDS, (name, a, b) => {
    const value = quantile(increase(times(a, name), times(b, name)), 0.99);
    return value === Infinity ? 33.6 : value;
  }), seconds, false);
  const scans = { eligible: "eligible_bytes", "saved by storage index": "saved_by_storage_index_bytes", "disk read": "disk_read_bytes", returned: "returned_bytes" };
  chart("chart-scans", series(Object.keys(scans), (name, a, b) => rate(a, b, `cellar_smart_scan_${scans[name]}_total`)), bytes, false);
  const operation = (name) => (labels) => labels.operation === name;
  chart("chart-disks", series(["read", "write"], (name, a, b) => rate(a, b, "cellar_disk_bytes_total", operation(name))), bytes, true);
  chart("chart-cpu", series(["cores"], (name, a, b) => rate(a, b, "cellar_cpu_seconds_total")), plain, true, 0.1);
  fileTable(from, to);
  fileTypeTable(from, to);
  scanTable(from, to);
  diskTables(from, to);
  memoryTable(to);
  backlogTable(from, to);
  warnings(from, to);
}

async function read() {
  try {
    const response = await fetch("json/metrics", { cache: "no-store", signal: AbortSignal.timeout(10000) });
    if (!response.ok) throw new Error(`status ${response.status}`);
    const { schema_version: version, time_ms, metrics } = await response.json();
    if (version !== 1) throw new Error("the cell has another version than this page: reload");
    const reading = { time_ms, metrics: new Map(metrics.map((metric) => [metric.name, metric])) };
    const last = readings.at(-1);
    const start = (one) => total(one, "cellar_start_time_seconds");
    // The counters of a restarted cell begin at zero.
    if (last && start(last) !== start(reading)) readings.length = 0;
    readings.push(reading);
    if (readings.length > axis.points) readings.shift();
    draw();
    show(`at ${new Date(time_ms).toLocaleTimeString()}, every ${axis.periodMs / 1000} s`, false);
  } catch (error) {
    show(`no answer from the cell: ${error.message}`, true);
  }
}

run(read);
