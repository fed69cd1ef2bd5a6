//! Compares scans of heap files with PostgreSQL's results: several tables, generated predicates, and kernels,
//! interpreter and server against each other. Skipped if PostgreSQL is not installed.
//!
//! `CELLAR_SEED` and `CELLAR_CASES` choose what is generated.

use crate::support::cluster::Cluster;
use crate::support::generator::{Generator, TYPES, from_wire, quote, type_of, unhex};
use crate::support::reader::{Answer, read};
use crate::support::{Random, setting};
use cellar_format::postgres::{Align, Oid, Width, encoding, type_oid};
use cellar_format::units::BLOCK_BYTES;
use cellar_format::wire::{
    Attribute, Expr, Missing, PassthruReason, Relation, ScanMode, ScanRequest, Snapshot, XidState,
};
use cellar_scan::{Plan, Progress, RegionSummary, ResultWriter, Scanner, XidLookup};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Blocks per scan call: few, so that some calls are pruned and some blocks are passed through.
const RUN_BLOCKS: usize = 3;

/// Transaction states from `pg_xact_status`.
struct Transactions<'a> {
    cluster: &'a Cluster,
    known: RefCell<HashMap<u32, XidState>>,
}

impl XidLookup for Transactions<'_> {
    fn state(&self, xid: u32) -> Option<XidState> {
        self.known.borrow().get(&xid).copied()
    }
}

impl Transactions<'_> {
    fn load(&self, xids: &[u32]) {
        for xid in xids {
            let status = self.cluster.sql(&format!("select pg_xact_status('{xid}'::xid8)"));
            let state = match status.trim() {
                "committed" => XidState::Committed,
                "aborted" => XidState::Aborted,
                "in progress" => XidState::Running,
                other => panic!("transaction {xid} is {other:?}"),
            };
            self.known.borrow_mut().insert(*xid, state);
        }
    }
}

struct Table<'a> {
    cluster: &'a Cluster,
    name: &'static str,
    attributes: Vec<Attribute>,
    names: Vec<Option<String>>,
    snapshot: Snapshot,
    heap: Vec<u8>,
    transactions: Transactions<'a>,
}

impl<'a> Table<'a> {
    /// Opens a table. `missing` are the names of columns that were added with a default, and the defaults as whole datums.
    fn open(cluster: &'a Cluster, name: &'static str, missing: &[(&str, Vec<u8>)]) -> Self {
        let listing = cluster.sql(&format!(
            "select attname, atttypid, attlen, attalign, attbyval, attisdropped, atthasmissing from pg_attribute
             where attrelid = '{name}'::regclass and attnum > 0 order by attnum"
        ));
        let mut attributes = Vec::new();
        let mut names = Vec::new();
        for line in listing.lines() {
            let fields: Vec<&str> = line.split('|').collect();
            let value = missing.iter().find(|(column, _)| *column == fields[0]).map(|(_, value)| value.clone());
            assert_eq!(fields[6] == "t", value.is_some(), "missing value of {}", fields[0]);
            attributes.push(Attribute {
                type_oid: fields[1].parse().unwrap(),
                typmod: -1,
                width: Width::from_typlen(fields[2].parse().unwrap()).unwrap(),
                align: Align::from_typalign(fields[3].as_bytes()[0]).unwrap(),
                by_value: fields[4] == "t",
                missing: value.map_or(Missing::Null, Missing::Value),
            });
            names.push((fields[5] == "f").then(|| fields[0].to_owned()));
        }
        let heap = cluster.heap(name);
        let bounds =
            cluster.sql("select pg_snapshot_xmin(s), pg_snapshot_xmax(s) from (select pg_current_snapshot()) as c(s)");
        let (xmin, xmax) = bounds.trim().split_once('|').unwrap();
        let xmax: u64 = xmax.parse().unwrap();
        let snapshot = Snapshot {
            xmin: xmin.parse().unwrap(),
            xmax: xmax as u32,
            taken_during_recovery: false,
            next_full_xid: xmax,
        };
        let transactions = Transactions { cluster, known: RefCell::default() };
        Self { cluster, name, attributes, names, snapshot, heap, transactions }
    }

    fn columns(&self) -> Vec<Option<(String, Oid)>> {
        let known = |oid: Oid| TYPES.iter().any(|known| known.oid == oid);
        self.names
            .iter()
            .zip(&self.attributes)
            .map(|(name, attribute)| {
                name.clone().filter(|_| known(attribute.type_oid)).map(|name| (name, attribute.type_oid))
            })
            .collect()
    }

    fn request(&self, quals: Vec<Expr>, projection: Vec<u16>, mode: ScanMode) -> ScanRequest {
        let request = ScanRequest {
            relation: Relation {
                file: String::new(),
                segment_blocks: 131_072,
                checksums: true,
                encoding: encoding::UTF8,
                attributes: self.attributes.clone(),
            },
            quals,
            projection,
            mode,
            snapshot: self.snapshot.clone(),
            threads: 1,
            aggregation: None,
            lookups: Vec::new(),
            top_n: None,
            index: None,
        };
        let mut wire = Vec::new();
        request.encode(&mut wire);
        assert_eq!(ScanRequest::decode(&wire).unwrap(), request);
        request
    }

    /// Scans the table in runs. Returns the answer and the summary of each run.
    fn scan(&self, plan: Plan, want_summary: bool) -> (Answer, Vec<Option<RegionSummary>>) {
        let widths = plan_widths(&self.attributes, plan.projection());
        let mut scanner = Scanner::new(Arc::new(plan));
        scanner.verify_checksums(true);
        let mut out = ResultWriter::new();
        let mut summaries = Vec::new();
        for (index, run) in self.heap.chunks(RUN_BLOCKS * BLOCK_BYTES).enumerate() {
            let first = (index * RUN_BLOCKS) as u32;
            loop {
                let before = out.pending_bytes();
                match scanner.scan(first, run, &self.transactions, &mut out, want_summary) {
                    Progress::Done { summary, .. } => break summaries.push(summary),
                    Progress::NeedXids(xids) => {
                        assert_eq!(before, out.pending_bytes());
                        self.transactions.load(&xids);
                    }
                }
            }
        }
        out.flush();
        (read(out.frames(), &widths), summaries)
    }
}

fn plan_widths(attributes: &[Attribute], projection: &[u16]) -> Vec<Option<usize>> {
    let width = |number: &u16| match attributes[*number as usize - 1].width {
        Width::Fixed(bytes) => Some(bytes as usize),
        _ => None,
    };
    projection.iter().map(width).collect()
}

/// Returns the ids in the first projected column, an int4.
fn ids(answer: &Answer) -> Vec<i32> {
    answer.rows.iter().map(|row| i32::from_le_bytes(row[0].as_deref().unwrap().try_into().unwrap())).collect()
}

/// Returns a row of literals, one for each of [`TYPES`]. One of `null_one_in` values is NULL; 0: none.
fn random_row(random: &mut Random, null_one_in: usize) -> String {
    let values: Vec<String> = TYPES
        .iter()
        .map(|known| match null_one_in > 0 && random.one_in(null_one_in) {
            true => "NULL".into(),
            false if random.one_in(3) && matches!(known.oid, type_oid::INT4 | type_oid::INT8 | type_oid::NUMERIC) => {
                (random.below(2000) as i64 - 1000).to_string()
            }
            false if random.one_in(3) && known.oid == type_oid::DATE => {
                format!("'2000-01-01'::date + {}", random.below(9000))
            }
            false => format!("{}::{}", quote(random.pick::<&str>(known.literals)), known.name),
        })
        .collect();
    values.join(", ")
}

fn create(cluster: &Cluster, name: &str, random: &mut Random, rows: usize, null_one_in: usize) {
    let columns: Vec<String> = TYPES
        .iter()
        .enumerate()
        .map(|(index, known)| {
            let not_null = if null_one_in == 0 { " not null" } else { "" };
            format!("c{index} {}{not_null}", known.name)
        })
        .collect();
    let mut script = format!("create table {name} (id int4, {});\n", columns.join(", "));
    for first in (0..rows).step_by(100) {
        let values: Vec<String> =
            (first..rows.min(first + 100)).map(|id| format!("({id}, {})", random_row(random, null_one_in))).collect();
        script += &format!("insert into {name} values {};\n", values.join(",\n"));
    }
    cluster.sql(&script);
}

/// Changes a table in every way that leaves traces in pages, except setting all-visible bits.
fn change_table(cluster: &mut Cluster, name: &str) {
    cluster.sql(&format!(
        "alter table {name} add column gone int4; update {name} set gone = id where id % 3 = 0;
         alter table {name} drop column gone;
         delete from {name} where id % 11 = 0;
         update {name} set c3 = id where id % 7 = 0;
         begin; update {name} set c3 = 4711 where id % 13 = 0; delete from {name} where id % 17 = 0; rollback;
         begin; savepoint s; delete from {name} where id % 19 = 0; rollback to s;
         update {name} set c4 = 5 where id % 23 = 0; commit;
         alter table {name} add column added_int int4 default 7;
         alter table {name} add column added_text text default 'added';
         insert into {name} (id, added_int, added_text) values (100001, NULL, 'x'), (100002, 8, NULL);
         begin; select count(*) from (select 1 from {name} where id % 29 = 0 for update) x; commit;
         begin; select count(*) from (select 1 from {name} where id % 31 = 0 for share) x; commit;
         -- values that are compressed, and values that are stored out of line
         update {name} set c9 = repeat('abc', 1500) where id % 37 = 0;
         alter table {name} alter c10 set compression lz4;
         update {name} set c10 = repeat('zyx ', 1000) where id % 41 = 0;
         alter table {name} alter c12 set storage external;
         update {name} set c12 = convert_to(repeat('0123456789', 500), 'utf8') where id % 43 = 0;
         update {name} set c8 = repeat('1234567890', 900)::numeric where id % 47 = 0;"
    ));
    cluster
        .keep_open(&format!("begin; delete from {name} where id % 53 = 0; insert into {name} (id) values (200001);"));
    // Multixacts: rows that are locked by one transaction and updated by another.
    cluster.keep_open(&format!(
        "begin; select count(*) from (select 1 from {name} where id % 61 = 5 and id % 53 <> 0 for key share) x;"
    ));
    cluster.sql(&format!("update {name} set c3 = -5 where id % 61 = 5 and id % 53 <> 0 and id < 800;"));
}

/// Scans with a predicate and compares the result with the expected rows.
fn check_predicate(table: &Table<'_>, sql: &str, expr: &Expr, expected: &Expected) -> CheckResult {
    let request = |projection| table.request(vec![expr.clone()], projection, ScanMode::Columns);
    let plan = match Plan::compile(&request(vec![1])) {
        Ok(plan) => plan,
        Err(unsupported) => panic!("{unsupported}: {sql}"),
    };
    let (answer, summaries) = table.scan(plan, true);
    let passed: BTreeSet<u32> = answer.passthru.iter().map(|(block, _)| *block).collect();
    let predicate = answer.passthru.iter().any(|(_, reason)| *reason == PassthruReason::Predicate);

    // Kernels must agree with the interpreter, but may decide rows that the interpreter leaves undecided.
    let (interpreted, _) = table.scan(Plan::compile_interpreted(&request(vec![1])).unwrap(), false);
    let passed_interpreted: BTreeSet<u32> = interpreted.passthru.iter().map(|(block, _)| *block).collect();
    assert!(passed.is_subset(&passed_interpreted), "the interpreter decides more than the kernels: {sql}");
    if passed == passed_interpreted {
        assert_eq!(answer.rows, interpreted.rows, "kernel and interpreter: {sql}");
    }

    let plan = Plan::compile(&request(vec![1])).unwrap();
    let may_match = |summary: &Option<RegionSummary>| summary.as_ref().is_none_or(|summary| plan.may_match(summary));
    let kept: Vec<bool> = summaries.iter().map(may_match).collect();
    match expected {
        Expected::Rows(rows) => {
            let expected: Vec<i32> =
                rows.iter().filter(|(_, block)| !passed.contains(block)).map(|(id, _)| *id).collect();
            let mut found = ids(&answer);
            found.sort_unstable();
            assert_same(&found, &expected, sql);
            let mut found = ids(&interpreted);
            found.sort_unstable();
            let expected: Vec<i32> =
                rows.iter().filter(|(_, block)| !passed_interpreted.contains(block)).map(|(id, _)| *id).collect();
            assert_same(&found, &expected, sql);
            for (id, block) in rows {
                assert!(kept[*block as usize / RUN_BLOCKS], "pruned block {block} with row {id}: {sql}");
            }
        }
        Expected::Error => {
            let undecided = predicate || !passed.is_empty();
            assert!(undecided, "PostgreSQL raises an error but the scan passes nothing through: {sql}\n{expr:?}");
            assert!(kept.iter().any(|kept| *kept), "pruned although PostgreSQL raises an error: {sql}");
        }
    }
    CheckResult { passed: passed.len(), pruned: kept.iter().filter(|kept| !**kept).count(), predicate }
}

#[track_caller]
fn assert_same(found: &[i32], expected: &[i32], sql: &str) {
    if found != expected {
        let extra: Vec<_> = found.iter().filter(|id| !expected.contains(id)).take(20).collect();
        let lost: Vec<_> = expected.iter().filter(|id| !found.contains(id)).take(20).collect();
        panic!("{sql}\nids only in the scan: {extra:?}\nids only in PostgreSQL: {lost:?}");
    }
}

struct CheckResult {
    passed: usize,
    pruned: usize,
    predicate: bool,
}

enum Expected {
    /// Id and block of the rows that qualify.
    Rows(BTreeMap<i32, u32>),
    Error,
}

/// Returns PostgreSQL's result for each predicate. None: PostgreSQL rejects the predicate when planning.
fn run_in_postgresql(table: &Table<'_>, predicates: &[(String, Expr)]) -> Vec<Option<Expected>> {
    let mut script = String::new();
    for (sql, _) in predicates {
        // IS TRUE prevents the planner from splitting and reordering the predicate.
        script += &format!(
            "\\o /dev/null\nexplain select 1 from {name} where ({sql}) is true;\n\\o\n\\echo explained :ERROR\n\
             select id, (ctid::text::point)[0]::int from {name} where ({sql}) is true;\n\\echo done :ERROR\n",
            name = table.name
        );
    }
    let (output, errors) = table.cluster.script(&script);
    let mut answers = Vec::new();
    let mut rows = BTreeMap::new();
    let mut rejected = false;
    for line in output.lines() {
        match line {
            "explained true" => rejected = true,
            "explained false" => rejected = false,
            "done true" if rejected => answers.push(None),
            "done true" => answers.push(Some(Expected::Error)),
            "done false" => answers.push(Some(Expected::Rows(std::mem::take(&mut rows)))),
            row => {
                let (id, block) = row.split_once('|').unwrap_or_else(|| panic!("{row}"));
                rows.insert(id.parse().unwrap(), block.parse().unwrap());
            }
        }
        if line.starts_with("done") {
            rows.clear();
        }
    }
    assert_eq!(answers.len(), predicates.len(), "{errors}");
    answers
}

fn check_generated(table: &Table<'_>, random: &mut Random, cases: usize, depth: usize) {
    let generator = Generator::new(table.cluster, table.columns());
    let (mut compared, mut errors, mut passed, mut pruned, mut undecided) = (0, 0, 0, 0, 0);
    for batch in 0..cases.div_ceil(100) {
        let predicates: Vec<_> = (batch * 100..cases.min(batch * 100 + 100))
            .map(|case| generator.condition(random, case % (depth + 1)))
            .collect();
        let answers = run_in_postgresql(table, &predicates);
        for ((sql, expr), expected) in predicates.iter().zip(&answers) {
            let Some(expected) = expected else { continue };
            let result = check_predicate(table, sql, expr, expected);
            compared += 1;
            errors += usize::from(matches!(expected, Expected::Error));
            undecided += usize::from(result.predicate);
            passed += result.passed;
            pruned += result.pruned;
        }
    }
    let blocks = table.heap.len() / BLOCK_BYTES * compared.max(1);
    println!(
        "{}: {compared} predicates compared, {errors} with errors in PostgreSQL, {undecided} with undecided rows, {:.1} % \
         of blocks passed through, {pruned} runs pruned",
        table.name,
        passed as f64 * 100.0 / blocks as f64
    );
    assert!(compared > cases / 2 && pruned > 0);
}

/// Checks that every projected value equals the value that PostgreSQL sends.
fn check_projection(table: &Table<'_>) {
    let columns = table.columns();
    let numbers: Vec<u16> =
        (1..=columns.len() as u16).filter(|number| columns[*number as usize - 1].is_some()).collect();
    let expressions: Vec<String> = numbers
        .iter()
        .map(|number| {
            let (name, oid) = columns[*number as usize - 1].as_ref().unwrap();
            format!("encode({}({name}), 'hex')", type_of(*oid).send)
        })
        .collect();
    let listing = table.cluster.sql(&format!(
        "\\pset null NULL\nselect (ctid::text::point)[0]::int, {} from {} order by ctid",
        expressions.join(", "),
        table.name
    ));
    let plan = Plan::compile(&table.request(vec![], numbers.clone(), ScanMode::Columns)).unwrap();
    let (answer, _) = table.scan(plan, false);
    let passed: BTreeSet<u32> = answer.passthru.iter().map(|(block, _)| *block).collect();
    let mut found = answer.rows.iter();
    let mut rows = 0;
    for line in listing.lines() {
        let fields: Vec<&str> = line.split('|').collect();
        if passed.contains(&fields[0].parse().unwrap()) {
            continue;
        }
        let row = found.next().expect("fewer rows than in PostgreSQL");
        rows += 1;
        for ((number, datum), field) in numbers.iter().zip(row).zip(&fields[1..]) {
            let (name, oid) = columns[*number as usize - 1].as_ref().unwrap();
            let Some(datum) = datum else {
                assert_eq!(*field, "NULL", "{name}");
                continue;
            };
            // PostgreSQL sends jsonb as text.
            if *oid == type_oid::JSONB {
                continue;
            }
            let expected = from_wire(*oid, &unhex(field));
            if matches!(table.attributes[*number as usize - 1].width, Width::Fixed(_)) {
                assert_eq!(*datum, expected, "{name} in {line}");
            } else if let Some(payload) = cellar_scan::heap::varlena::payload(datum)
                && *oid != type_oid::NUMERIC
            {
                assert_eq!(*payload, expected, "{name} in {line}");
            }
        }
    }
    assert_eq!(found.next(), None, "more rows than in PostgreSQL");

    // Compare whole tuples and the number of rows, too.
    let plan = Plan::compile(&table.request(vec![], vec![], ScanMode::Rows)).unwrap();
    let (tuples, _) = table.scan(plan, false);
    assert_eq!(tuples.tuples.len(), rows);
    for (block, line, tuple) in &tuples.tuples {
        let page = &table.heap[*block as usize * BLOCK_BYTES..][..BLOCK_BYTES];
        let at = 24 + (*line as usize - 1) * 4;
        let pointer = u32::from_le_bytes(page[at..at + 4].try_into().unwrap());
        let (offset, length) = ((pointer & 0x7fff) as usize, (pointer >> 17) as usize);
        assert_eq!(tuple[..], page[offset..offset + length]);
    }
    let plan = Plan::compile(&table.request(vec![], vec![], ScanMode::Columns)).unwrap();
    let (count, _) = table.scan(plan, false);
    assert_eq!(count.counted, rows as u64);
    println!("{}: {rows} rows projected, {} blocks passed through", table.name, passed.len());
}

fn varlena(text: &str) -> Vec<u8> {
    let mut datum = vec![((text.len() + 1) << 1 | 1) as u8];
    datum.extend(text.as_bytes());
    datum
}

#[test]
fn scans_return_the_same_rows_as_postgresql() {
    let Some(mut cluster) = Cluster::start("changed") else {
        println!("skipped: no PostgreSQL found");
        return;
    };
    let seed = setting("CELLAR_SEED", 1);
    let cases = setting("CELLAR_CASES", 500) as usize;
    println!("CELLAR_SEED={seed} CELLAR_CASES={cases}");
    let mut random = Random::new(seed);
    create(&cluster, "changed", &mut random, 2500, 6);
    create(&cluster, "dense", &mut random, 1500, 0);
    cluster.sql("create table sorted as select * from dense order by c3; alter table sorted add column late int4");
    cluster.sql("vacuum (freeze) dense; vacuum (freeze) sorted");
    change_table(&mut cluster, "changed");
    let cluster = cluster;

    let missing = [("added_int", 7i32.to_le_bytes().to_vec()), ("added_text", varlena("added"))];
    let changed = Table::open(&cluster, "changed", &missing);
    let dense = Table::open(&cluster, "dense", &[]);
    let sorted = Table::open(&cluster, "sorted", &[]);
    for table in [&changed, &dense, &sorted] {
        check_projection(table);
    }
    check_generated(&changed, &mut random, cases, 3);
    check_generated(&dense, &mut random, cases / 2, 2);
    check_generated(&sorted, &mut random, cases / 2, 1);
}

#[test]
fn the_table_of_functions_agrees_with_pg_proc() {
    let Some(cluster) = Cluster::start("functions") else {
        println!("skipped: no PostgreSQL found");
        return;
    };
    let listing = cluster.sql(
        "select oid, prosrc, proargtypes, prorettype, proisstrict from pg_proc
         where (provolatile = 'i' or provolatile = 's' and (1184 = any (proargtypes || prorettype) or 2275 = proargtypes[0]))
           and prolang = 12 and not proretset",
    );
    let known: HashMap<u32, &str> = listing
        .lines()
        .filter_map(|line| line.split_once('|'))
        .map(|(oid, rest)| (oid.parse().unwrap(), rest))
        .collect();
    for function in cellar_scan::offloadable_functions() {
        let args: Vec<String> = function.args.iter().map(ToString::to_string).collect();
        let expected = format!("{}|{}|{}|t", function.name, args.join(" "), function.result);
        assert_eq!(known.get(&function.oid), Some(&expected.as_str()), "{}", function.oid);
    }
}
