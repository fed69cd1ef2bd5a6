//! Compares the cell's groups with PostgreSQL's. States must equal the output of PostgreSQL's serialization functions,
//! byte for byte.
//!
//! `AGGREGATE_SEED`, `AGGREGATE_ROWS` and `AGGREGATE_CASES` choose the random tables and requests.

use crate::support::cluster::Cluster;
use crate::support::generator::Generator;
use crate::support::reader::{Answer, Datum, read_with_groups};
use crate::support::{Random, setting};
use cellar_format::ByteSource;
use cellar_format::postgres::{Align, Collation, Width, encoding};
use cellar_format::units::BLOCK_BYTES;
use cellar_format::wire::{
    Aggregate, Aggregation, Attribute, Comparison, DistinctAggregates, Expr, GroupPruning, JoinKind, Lookup,
    LookupColumn, Missing, Relation, ScanMode, ScanRequest, Snapshot, SortKey, TopGroups,
};
use cellar_scan::aggregate::{Aggregator, GroupMerge};
use cellar_scan::unit::{self, Level, Shape, Unit, encode};
use cellar_scan::{NoXids, Plan, Progress, ResultWriter, Scanner, UnitScanner};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;

/// Aggregates whose result is the partial state of an aggregate.
const STATES: &str = "
    create function numeric_bytes(internal) returns bytea language internal strict as 'numeric_avg_serialize';
    create function int8_bytes(internal) returns bytea language internal strict as 'int8_avg_serialize';
    create function numeric_step(internal, numeric) returns internal language internal as 'numeric_avg_accum';
    create function int8_step(internal, int8) returns internal language internal as 'int8_avg_accum';
    create function int4_step(int8[], int4) returns int8[] language internal strict as 'int4_avg_accum';
    create function float8_step(float8[], float8) returns float8[] language internal strict as 'float8_accum';
    create aggregate numeric_state(numeric) (sfunc = numeric_step, stype = internal, finalfunc = numeric_bytes);
    create aggregate int8_state(int8) (sfunc = int8_step, stype = internal, finalfunc = int8_bytes);
    create aggregate int4_state(int4) (sfunc = int4_step, stype = int8[], initcond = '{0,0}');
    create aggregate float8_state(float8) (sfunc = float8_step, stype = float8[], initcond = '{0,0,0}');
    create function squares_bytes(internal) returns bytea language internal strict as 'numeric_serialize';
    create function poly_bytes(internal) returns bytea language internal strict as 'numeric_poly_serialize';
    create function squares_step(internal, numeric) returns internal language internal as 'numeric_accum';
    create function squares_step(internal, int4) returns internal language internal as 'int4_accum';
    create function squares_step(internal, int2) returns internal language internal as 'int2_accum';
    create aggregate numeric_squares_state(numeric) (sfunc = squares_step, stype = internal, finalfunc = squares_bytes);
    create aggregate int4_squares_state(int4) (sfunc = squares_step, stype = internal, finalfunc = poly_bytes);
    create aggregate int2_squares_state(int2) (sfunc = squares_step, stype = internal, finalfunc = poly_bytes);";

const COLUMNS: &str =
    "id int4, k1 text, k2 int4, i2 int2, i4 int4, i8 int8, n numeric, m numeric(12,2), f float8, b bool,
    d date, t text collate \"C\"";
const KEY_TEXT: u16 = 2;
const KEY_INT: u16 = 3;
const UNIT_PAGES: usize = 50;

struct Table {
    attributes: Vec<Attribute>,
    heap: Vec<u8>,
    /// The heap in compression units of [`UNIT_PAGES`] pages, at the levels that were used so far.
    units: RefCell<HashMap<Level, Rc<Vec<Vec<u8>>>>>,
}

impl Table {
    fn open(cluster: &Cluster, name: &str) -> Self {
        let listing = cluster.sql(&format!(
            "vacuum freeze {name}; select atttypid, atttypmod, attlen, attalign, attbyval from pg_attribute
             where attrelid = '{name}'::regclass and attnum > 0 order by attnum"
        ));
        let attribute = |line: &str| {
            let fields: Vec<&str> = line.split('|').collect();
            Attribute {
                type_oid: fields[0].parse().unwrap(),
                typmod: fields[1].parse().unwrap(),
                width: Width::from_typlen(fields[2].parse().unwrap()).unwrap(),
                align: Align::from_typalign(fields[3].as_bytes()[0]).unwrap(),
                by_value: fields[4] == "t",
                missing: Missing::Null,
            }
        };
        let attributes = listing.lines().map(attribute).collect();
        Self { attributes, heap: cluster.heap(name), units: RefCell::default() }
    }

    fn units(&self, level: Level) -> Rc<Vec<Vec<u8>>> {
        let runs = || self.heap.chunks(UNIT_PAGES * BLOCK_BYTES);
        let encoded = || Rc::new(runs().map(|run| encode(run, &self.shape(), level).unwrap()).collect());
        self.units.borrow_mut().entry(level).or_insert_with(encoded).clone()
    }

    /// Returns all groups and the ids of the rejected rows. Scans heap pages and compression units, and compares the
    /// answers.
    fn aggregate(&self, aggregation: Aggregation, group_widths: &[Option<usize>]) -> Answer {
        self.aggregate_where(vec![], aggregation, group_widths)
    }

    fn request(&self, quals: Vec<Expr>, aggregation: Aggregation) -> ScanRequest {
        ScanRequest {
            relation: Relation {
                file: String::new(),
                segment_blocks: 131_072,
                checksums: true,
                encoding: encoding::UTF8,
                attributes: self.attributes.clone(),
            },
            quals,
            projection: vec![1],
            mode: ScanMode::Columns,
            snapshot: Snapshot { xmin: 1 << 20, xmax: 1 << 20, taken_during_recovery: false, next_full_xid: 1 << 20 },
            threads: 1,
            aggregation: Some(aggregation),
            lookups: Vec::new(),
            top_n: None,
            index: None,
        }
    }

    fn aggregate_where(&self, quals: Vec<Expr>, aggregation: Aggregation, group_widths: &[Option<usize>]) -> Answer {
        self.answer(&self.request(quals, aggregation), group_widths)
    }

    fn answer(&self, request: &ScanRequest, group_widths: &[Option<usize>]) -> Answer {
        let mut wire = Vec::new();
        request.encode(&mut wire);
        assert_eq!(ScanRequest::decode(&wire).unwrap(), *request);
        let plan = Arc::new(Plan::compile(request).unwrap());
        let aggregated = |progress: Progress| match progress {
            Progress::Done { stats, .. } => stats.rows_aggregated,
            Progress::NeedXids(xids) => panic!("a frozen table needs {} transaction states", xids.len()),
        };
        let answer = |out: &mut ResultWriter, rows: u64| {
            out.flush();
            let mut answer = read_with_groups(out.frames(), &[Some(4)], group_widths);
            assert!(answer.passthru.is_empty());
            answer.groups.sort();
            answer.counted = rows;
            answer
        };
        let scan_heap = |plan: Arc<Plan>| {
            let (mut scanner, mut out, mut rows) = (Scanner::new(plan), ResultWriter::new(), 0);
            for (index, run) in self.heap.chunks(16 * BLOCK_BYTES).enumerate() {
                rows += aggregated(scanner.scan(index as u32 * 16, run, &NoXids, &mut out, false));
            }
            scanner.finish_range(&mut out);
            answer(&mut out, rows)
        };
        let of_heap = scan_heap(Arc::clone(&plan));
        let interpreted = scan_heap(Arc::new(Plan::compile_interpreted(request).unwrap()));
        assert!(of_heap == interpreted, "{:?}: {of_heap:?}\n{interpreted:?}", request.aggregation);
        // Scans units whole and in two parts, so that spans do not start at the boundary of a block of rows.
        let ways = [(Level::QueryLow, UNIT_PAGES / 3), (Level::QueryLow, 0), (Level::QueryHigh, UNIT_PAGES / 3)];
        for (level, cut) in ways {
            let (mut scanner, mut out, mut rows) = (UnitScanner::new(Arc::clone(&plan)), ResultWriter::new(), 0);
            for (index, bytes) in self.units(level).iter().enumerate() {
                let unit = Unit::open(bytes).unwrap();
                for pages in [0..cut, cut..UNIT_PAGES] {
                    let first = (index * UNIT_PAGES) as u32;
                    rows += aggregated(scanner.scan(first, &unit, bytes, pages, &NoXids, &mut out).unwrap());
                }
            }
            scanner.finish_range(&mut out);
            let of_units = answer(&mut out, rows);
            assert!(of_heap == of_units, "{level:?}, {cut}, {request:?}: {of_heap:?}\n{of_units:?}");
        }
        of_heap
    }

    fn shape(&self) -> Shape {
        let attribute = |attribute: &Attribute| unit::Attribute {
            type_oid: attribute.type_oid,
            width: attribute.width,
            align: attribute.align,
            by_value: attribute.by_value,
            dropped: false,
        };
        Shape { attributes: self.attributes.iter().map(attribute).collect() }
    }
}

fn aggregate(function: u32, column: Option<u16>) -> Aggregate {
    Aggregate { function, collation: Collation::Bytewise, argument: column.map(Expr::Column), filter: None }
}

fn payload(datum: &[u8]) -> &[u8] {
    if datum[0] & 1 == 1 { &datum[1..] } else { &datum[4..] }
}

fn hex(datum: &Datum) -> String {
    let bytes = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    datum.as_ref().map_or(String::new(), |datum| format!("\\x{}", bytes(payload(datum))))
}

fn int(datum: &Datum) -> String {
    datum.as_ref().map_or(String::new(), |datum| {
        let mut bytes = [if datum[datum.len() - 1] & 0x80 != 0 { 0xff } else { 0 }; 8];
        bytes[..datum.len()].copy_from_slice(datum);
        i64::from_le_bytes(bytes).to_string()
    })
}

fn text(datum: &Datum) -> String {
    datum.as_ref().map_or(String::new(), |datum| String::from_utf8(payload(datum).to_vec()).unwrap())
}

fn words(datum: &Datum) -> Vec<[u8; 8]> {
    let datum = datum.as_ref().unwrap();
    assert_eq!(u32::from_le_bytes(datum[..4].try_into().unwrap()) as usize >> 2, datum.len());
    datum[24..].chunks_exact(8).map(|word| word.try_into().unwrap()).collect()
}

fn ints(datum: &Datum) -> String {
    let words: Vec<String> = words(datum).into_iter().map(|word| i64::from_le_bytes(word).to_string()).collect();
    format!("{{{}}}", words.join(","))
}

fn bool(datum: &Datum) -> String {
    datum.as_ref().map_or(String::new(), |datum| if datum[0] == 1 { "t".into() } else { "f".into() })
}

fn random_rows(random: &mut Random, rows: usize) -> String {
    let mut script = String::new();
    for first in (0..rows).step_by(200) {
        let mut values = Vec::new();
        for id in first..rows.min(first + 200) {
            let mut one = |null: usize, value: &dyn Fn(&mut Random) -> String| {
                if random.one_in(null) { "NULL".to_owned() } else { value(random) }
            };
            let key = one(9, &|r| format!("'{}'", r.pick(&["a", "bb", "a longer key than fits", "", "ünï"])));
            let number = one(9, &|r| (r.below(4) as i64 - 1).to_string());
            let i2 = one(5, &|r| (r.below(65_536) as i64 - 32_768).to_string());
            let i4 = one(5, &|r| (r.next() as i32).to_string());
            let i8 = one(5, &|r| format!("'{}'", r.next() as i64));
            let n = one(5, &|r| {
                let scale = r.below(7);
                let text = format!("{:0>8}", r.below(1 << 40));
                let (whole, fraction) = text.split_at(text.len() - scale);
                format!("{}{whole}.{fraction}0", if r.one_in(2) { "-" } else { "" })
            });
            let m = one(5, &|r| format!("{}.{:02}", r.below(1 << 30) as i64 - (1 << 29), r.below(100)));
            let f = one(5, &|r| format!("{}", (r.next() as i32) as f64 / 1000.0));
            let b = one(5, &|r| ["true", "false"][r.below(2)].to_owned());
            let d = one(5, &|r| format!("date '2000-01-01' + {}", r.below(9000)));
            let t =
                one(5, &|r| format!("'{}'", "xyzw".chars().nth(r.below(4)).unwrap().to_string().repeat(r.below(200))));
            values.push(format!("({id}, {key}, {number}, {i2}, {i4}, {i8}, {n}, {m}, {f}, {b}, {d}, {t})"));
        }
        script += &format!("insert into a values {};\n", values.join(",\n"));
    }
    script
}

#[test]
fn groups_equal_those_of_postgresql_byte_for_byte() {
    let Some(cluster) = Cluster::start("aggregate") else { return };
    let (seed, rows) = (setting("AGGREGATE_SEED", 1), setting("AGGREGATE_ROWS", 6000));
    println!("AGGREGATE_SEED={seed}");
    cluster.sql(STATES);
    let mut random = Random::new(seed);
    cluster.sql(&format!("create table a ({COLUMNS});\n{}", random_rows(&mut random, rows as usize)));
    let table = Table::open(&cluster, "a");
    for keys in [vec![], vec![KEY_TEXT], vec![KEY_INT, KEY_TEXT]] {
        let aggregation = Aggregation {
            keys: keys.iter().map(|key| Expr::Column(*key)).collect(),
            aggregates: vec![
                aggregate(2803, None),
                aggregate(2147, Some(7)),
                aggregate(2109, Some(4)),
                aggregate(2101, Some(5)),
                aggregate(2107, Some(6)),
                aggregate(2114, Some(7)),
                aggregate(2103, Some(8)),
                aggregate(2517, Some(10)),
                aggregate(2138, Some(11)),
                aggregate(2129, Some(12)),
                aggregate(2105, Some(9)),
                aggregate(2120, Some(9)),
                aggregate(2159, Some(8)),
                aggregate(2155, Some(5)),
                aggregate(2714, Some(4)),
                aggregate(2238, Some(5)),
                aggregate(2241, Some(6)),
                aggregate(6164, Some(4)),
            ],
            ..Aggregation::default()
        };
        let mut widths: Vec<Option<usize>> = keys.iter().map(|key| (*key == KEY_INT).then_some(4)).collect();
        let states = [Some(8), Some(8), Some(8), None, None, None, None, Some(1), Some(4), None, None, Some(8)];
        widths.extend(states);
        widths.extend([None, None, None, Some(4), Some(8), Some(2)]);
        let answer = table.aggregate(aggregation, &widths);
        assert!(answer.rows.is_empty(), "rows were rejected");
        assert!(answer.counted > 0);
        let mut found = BTreeMap::new();
        for group in &answer.groups {
            let (key, s) = group.split_at(keys.len());
            let key: Vec<String> = key
                .iter()
                .zip(&keys)
                .map(|(datum, key)| {
                    let shown = if *key == KEY_INT { int(datum) } else { text(datum) };
                    if datum.is_none() { "null".into() } else { format!("'{shown}'") }
                })
                .collect();
            let states = [
                int(&s[0]),
                int(&s[1]),
                int(&s[2]),
                ints(&s[3]),
                hex(&s[4]),
                hex(&s[5]),
                hex(&s[6]),
                bool(&s[7]),
                int(&s[8]),
                text(&s[9]),
                hex(&s[12]),
                hex(&s[13]),
                hex(&s[14]),
                int(&s[15]),
                int(&s[16]),
                int(&s[17]),
            ];
            // The last digits of floats depend only on the order of rows, which is the same in both.
            let greatest = s[11].as_ref().map(|bytes| bytes.as_slice().try_into().unwrap());
            let floats = words(&s[10]).into_iter().chain(greatest).map(f64::from_le_bytes).collect::<Vec<_>>();
            assert!(
                found.insert(key.join(","), (states.join("|"), floats)).is_none(),
                "group {key:?} was returned twice"
            );
        }
        let names: Vec<&str> = keys.iter().map(|key| if *key == KEY_INT { "k2" } else { "k1" }).collect();
        let keys: Vec<String> = names.iter().map(|key| format!("coalesce(quote_literal({key}), 'null')")).collect();
        let group_by = if keys.is_empty() { String::new() } else { format!("group by {}", names.join(", ")) };
        let listing = cluster.sql(&format!(
            "set max_parallel_workers_per_gather = 0; set enable_sort = off;
             select {}, count(*), count(n), sum(i2), int4_state(i4), int8_state(i8), numeric_state(n),
               numeric_state(m), bool_and(b), min(d) - date '2000-01-01', max(t),
               numeric_squares_state(m), int4_squares_state(i4), int2_squares_state(i2), bit_and(i4), bit_or(i8), bit_xor(i2),
               float8_state(f) || max(f) from a {group_by}",
            if keys.is_empty() { "''".into() } else { format!("concat_ws(',', {})", keys.join(", ")) }
        ));
        assert_eq!(listing.lines().count(), found.len());
        for line in listing.lines() {
            let (key, rest) = line.split_once('|').unwrap();
            let (states, floats) = rest.rsplit_once('|').unwrap();
            let (found, found_floats) = &found[key];
            assert_eq!(states, found, "group {key}");
            let floats: Vec<f64> = floats.trim_matches(['{', '}']).split(',').map(|f| f.parse().unwrap()).collect();
            assert_eq!(&floats, found_floats, "group {key}");
        }
    }
}

fn call(function: u32, column: u16, type_oid: u32, value: &[u8]) -> Expr {
    let constant = Expr::Const { type_oid, value: Some(value.to_vec()) };
    Expr::Call { function, collation: Collation::Bytewise, args: vec![Expr::Column(column), constant] }
}

/// Random predicates and aggregates have the same groups from heap pages and from units.
#[test]
fn units_aggregate_as_heap_pages_do() {
    let Some(cluster) = Cluster::start("aggregate-units") else { return };
    let (seed, cases) = (setting("AGGREGATE_SEED", 1), setting("AGGREGATE_CASES", 12));
    println!("AGGREGATE_SEED={seed}");
    let mut random = Random::new(seed);
    cluster.sql(&format!("create table a ({COLUMNS});\n{}", random_rows(&mut random, 9000)));
    // Adds columns with few values, long runs, no NULLs, and a single value.
    cluster.sql(
        "update a set i2 = 7, k2 = coalesce(k2, id / 100), m = coalesce(m, id % 50), b = coalesce(b, id % 3 = 0);
         insert into a (id, k1, k2, i2, i4, n, m, b) select i, 'x' || i % 3, i / 700, 7, i, 'NaN', i % 11, true
         from generate_series(10000, 12000) i",
    );
    let table = Table::open(&cluster, "a");
    let (mut groups, mut rejected) = (0, 0);
    for _ in 0..cases {
        let quals = (0..random.below(3)).map(|_| match random.below(7) {
            0 => call(66, 1, 23, &(random.below(9000) as i32).to_le_bytes()),
            1 => call(150, 5, 23, &(random.next() as i32).to_le_bytes()),
            2 => call(67, KEY_TEXT, 25, b"bb"),
            3 => call(850, 12, 25, random.pick(&["%xx%", "y%", "%w"]).as_bytes()),
            4 => Expr::IsNotNull(Box::new(Expr::Column(*random.pick(&[4, 7, 10])))),
            5 => call(144, KEY_INT, 23, &1i32.to_le_bytes()),
            _ => call(1722, 8, 1700, &[0x00, 0x80, random.below(9000) as u8, 0x10]),
        });
        let quals: Vec<Expr> = quals.collect();
        let keys: Vec<u16> = (0..random.below(4)).map(|_| *random.pick(&[2, 3, 4, 10, 11])).collect();
        let widths =
            |key: &u16| [None, Some(4), Some(2), None, None, None, None, None, Some(1), Some(4)][*key as usize - 2];
        let mut group_widths: Vec<Option<usize>> = keys.iter().map(widths).collect();
        let numeric = |function: u32, left: u16, right: u16| Aggregate {
            argument: Some(Expr::Call {
                function,
                collation: Collation::None,
                args: vec![Expr::Column(left), Expr::Column(right)],
            }),
            ..aggregate(2114, None)
        };
        let all = [
            (aggregate(2803, None), Some(8)),
            (aggregate(2147, Some(12)), Some(8)),
            (aggregate(2109, Some(4)), Some(8)),
            (aggregate(2101, Some(5)), None),
            (aggregate(2107, Some(6)), None),
            (aggregate(2114, Some(7)), None),
            (aggregate(2103, Some(8)), None),
            (numeric(1726, 8, 8), None),
            (numeric(1724, 8, 7), None),
            (aggregate(2517, Some(10)), Some(1)),
            (aggregate(2138, Some(11)), Some(4)),
            (aggregate(2129, Some(12)), None),
        ];
        let mut aggregates = Vec::new();
        for _ in 0..random.below(5) {
            let (aggregate, width) = random.pick(&all);
            aggregates.push(aggregate.clone());
            group_widths.push(*width);
        }
        if keys.is_empty() && aggregates.is_empty() {
            continue;
        }
        let keys = keys.into_iter().map(Expr::Column).collect();
        let answer =
            table.aggregate_where(quals, Aggregation { keys, aggregates, ..Aggregation::default() }, &group_widths);
        groups += answer.groups.len();
        rejected += answer.rows.len();
    }
    println!("{groups} groups, {rejected} rejected rows");
}

/// Most strings of the table occur once, so units have no lists of them.
#[test]
fn strings_without_a_dictionary_are_aggregated_as_those_of_heap_pages() {
    const LENGTH: u32 = 1317;
    let Some(cluster) = Cluster::start("aggregate-strings") else { return };
    cluster.sql(&format!(
        "create table a ({COLUMNS});
         insert into a (id, k1, k2, i4, t) select i, case when i % 7 > 0 then left(md5(i::text), i % 5 * 8) end, i / 900, i,
           case when i % 5 > 0 then md5((i * 3)::text) || i end from generate_series(1, 6000) i"
    ));
    let table = Table::open(&cluster, "a");
    for unit in table.units(Level::QueryLow).iter() {
        let unit = Unit::open(unit).unwrap();
        let has_list = |attribute| unit.chunks()[0].attribute(attribute).unwrap().has_list();
        assert!(!has_list(1) && !has_list(11));
    }
    let length =
        |column| Expr::Call { function: LENGTH, collation: Collation::Bytewise, args: vec![Expr::Column(column)] };
    let like = |column| call(850, column, 25, b"%ab%");
    let aggregates = [
        vec![aggregate(2803, None)],
        vec![aggregate(2129, Some(12)), aggregate(2147, Some(12))],
        vec![Aggregate { argument: Some(length(12)), ..aggregate(2108, None) }],
        vec![Aggregate { filter: Some(like(12)), ..aggregate(2803, None) }],
    ];
    // All rows, a few rows of a block, and the rows without a short string.
    let quals = [vec![], vec![call(66, 1, 23, &12i32.to_le_bytes())], vec![call(157, KEY_TEXT, 25, b"")]];
    for (aggregates, quals) in
        aggregates.iter().flat_map(|aggregates| quals.iter().map(move |quals| (aggregates, quals)))
    {
        for keys in [vec![KEY_TEXT], vec![KEY_INT], vec![KEY_TEXT, KEY_INT]] {
            let key_widths = keys.iter().map(|key| (*key == KEY_INT).then_some(4));
            let widths = aggregates.iter().map(|aggregate| (aggregate.function != 2129).then_some(8));
            let widths: Vec<Option<usize>> = key_widths.chain(widths).collect();
            let aggregation = Aggregation {
                keys: keys.into_iter().map(Expr::Column).collect(),
                aggregates: aggregates.clone(),
                ..Aggregation::default()
            };
            assert!(!table.aggregate_where(quals.clone(), aggregation, &widths).groups.is_empty());
        }
    }
}

/// A CASE whose results are constant strings, short, long and equal ones, or NULL.
fn choice(random: &mut Random, generator: &Generator) -> Expr {
    let strings = ["", "a", "b", "a string that is not stored within its code", "another string that is not"];
    let result = |random: &mut Random| {
        let value = (!random.one_in(5)).then(|| random.pick(&strings).as_bytes().to_vec());
        Expr::Const { type_oid: 25, value }
    };
    let whens = (0..1 + random.below(4)).map(|_| (generator.condition(random, 1).1, result(random))).collect();
    Expr::Case { whens, otherwise: Box::new(result(random)) }
}

/// Random expressions as keys, arguments and filters: the interpreter, heap pages and units have the same groups, and reject the
/// same rows.
#[test]
fn expressions_over_vectors_agree_with_the_interpreter() {
    let Some(cluster) = Cluster::start("aggregate-vectors") else { return };
    let (seed, cases) = (setting("AGGREGATE_SEED", 2), setting("AGGREGATE_CASES", 12));
    println!("AGGREGATE_SEED={seed}");
    let mut random = Random::new(seed);
    cluster.sql(&format!("create table a ({COLUMNS});\n{}", random_rows(&mut random, 4000)));
    // The second half has few values, long runs, and values without NULLs.
    cluster.sql(
        "update a set i2 = id % 7, i4 = coalesce(id % 3, 0), i8 = 5, m = id % 4, n = round(id % 5, 2), b = id % 3 = 0,
             t = repeat('xyz', id % 3), k1 = coalesce(k1, 'A') where id >= 2000;
         update a set n = 'NaN' where id = 3000;",
    );
    let table = Table::open(&cluster, "a");
    let names = ["id", "k1", "k2", "i2", "i4", "i8", "n", "m", "f", "b", "d", "t"];
    let columns = names.iter().zip(&table.attributes).map(|(name, a)| Some((name.to_string(), a.type_oid)));
    let generator = Generator::new(&cluster, columns.collect());
    // Functions of aggregates, the types of their arguments, and the widths of their states.
    let functions = [
        (2803, None, Some(8)),
        (2147, Some(16), Some(8)),
        (2147, Some(25), Some(8)),
        (2109, Some(21), Some(8)),
        (2108, Some(23), Some(8)),
        (2101, Some(23), None),
        (2107, Some(20), None),
        (2114, Some(1700), None),
        (2103, Some(1700), None),
        (2517, Some(16), Some(1)),
        (2138, Some(1082), Some(4)),
        (2116, Some(23), Some(4)),
        (2145, Some(25), None),
        (2120, Some(701), Some(8)),
        (2131, Some(20), Some(8)),
        (2135, Some(700), Some(4)),
        (2155, Some(23), None),
        (2239, Some(23), Some(4)),
        (6166, Some(20), Some(8)),
    ];
    let (mut groups, mut rejected) = (0, 0);
    // A seed can yield few groups or few errors, so there are more cases until both have been tested.
    for case in 0.. {
        let has_both = groups > 1000 && rejected > 1000;
        if case >= cases && has_both {
            break;
        }
        assert!(case < 20 * cases, "{groups} groups, {rejected} rejected rows");
        let mut widths = Vec::new();
        let mut keys = Vec::new();
        for _ in 0..random.below(3) {
            let (oid, width) =
                *random.pick(&[(16, Some(1)), (23, Some(4)), (20, Some(8)), (25, None), (1082, Some(4))]);
            keys.push(match oid == 25 && random.one_in(2) {
                true => choice(&mut random, &generator),
                false => generator.expr(&mut random, oid, 2).1,
            });
            widths.push(width);
        }
        let mut aggregates = Vec::new();
        for _ in 0..1 + random.below(4) {
            let (function, argument, width) = *random.pick(&functions);
            let argument = argument.map(|oid| match random.one_in(3) {
                // A CASE without errors, so that vectors compute most rows.
                true => {
                    let whens = (0..1 + random.below(2))
                        .map(|_| (generator.condition(&mut random, 1).1, generator.expr(&mut random, oid, 0).1));
                    let whens = whens.collect();
                    Expr::Case { whens, otherwise: Box::new(generator.expr(&mut random, oid, 0).1) }
                }
                false => generator.expr(&mut random, oid, 3).1,
            });
            let filter = random.one_in(2).then(|| generator.condition(&mut random, 2).1);
            aggregates.push(Aggregate { argument, filter, ..aggregate(function, None) });
            widths.push(width);
        }
        // A condition that raises an error would pass the block through.
        let quals = if random.one_in(3) { vec![generator.condition(&mut random, 0).1] } else { Vec::new() };
        println!("case {case}");
        let answer = table.aggregate_where(quals, Aggregation { keys, aggregates, ..Aggregation::default() }, &widths);
        groups += answer.groups.len();
        rejected += answer.rows.len();
    }
    println!("{groups} groups, {rejected} rejected rows");
}

/// A filter or a branch of CASE that excludes a row excludes the errors of its expressions, too. An expression that raises an
/// error rejects its row, which PostgreSQL then evaluates.
#[test]
fn excluded_expressions_raise_no_errors() {
    let Some(cluster) = Cluster::start("aggregate-errors") else { return };
    cluster.sql(&format!(
        "create table a ({COLUMNS});
         insert into a (id, i4, n, k2) select id, id % 5, nullif(id % 7, 0), case when id % 3 > 0 then id end
         from generate_series(0, 3999) id;"
    ));
    let table = Table::open(&cluster, "a");
    const ID: u16 = 1;
    const I4: u16 = 5;
    let int = |value: i32| Expr::Const { type_oid: 23, value: Some(value.to_le_bytes().to_vec()) };
    let call = |function: u32, left: Expr, right: Expr| Expr::Call {
        function,
        collation: Collation::None,
        args: vec![left, right],
    };
    // 100 / i4, whose value is an error if i4 is 0.
    let quotient = || call(154, int(100), Expr::Column(I4));
    let is_not_zero = || call(144, Expr::Column(I4), int(0));
    let is_zero = || Expr::Not(Box::new(is_not_zero()));
    let is_large = || call(147, quotient(), int(30));
    let in_empty_list = || Expr::AnyAll {
        function: 65,
        collation: Collation::None,
        any: true,
        scalar: Box::new(quotient()),
        elements: vec![],
    };
    let case = |whens: Vec<(Expr, Expr)>, otherwise: Expr| Expr::Case { whens, otherwise: Box::new(otherwise) };
    let check = |name: &str, argument: Option<Expr>, filter: Option<Expr>, is_error: &dyn Fn(i32) -> bool| {
        let function = if argument.is_some() { 2108 } else { 2803 };
        let wanted = Aggregate { argument, filter, ..aggregate(function, None) };
        let answer = table
            .aggregate(Aggregation { keys: vec![], aggregates: vec![wanted], ..Aggregation::default() }, &[Some(8)]);
        let id = |row: &Vec<Datum>| i32::from_le_bytes(row[0].as_ref().unwrap()[..].try_into().unwrap());
        let mut rejected: Vec<i32> = answer.rows.iter().map(id).collect();
        rejected.sort_unstable();
        assert_eq!(rejected, (0..4000).filter(|id| is_error(*id)).collect::<Vec<_>>(), "{name}");
    };
    let argument = |name, argument, is_error: &dyn Fn(i32) -> bool| check(name, Some(argument), None, is_error);
    let filter = |name, filter, is_error: &dyn Fn(i32) -> bool| check(name, None, Some(filter), is_error);
    let (zeroes, none) = (|id: i32| id % 5 == 0, |_: i32| false);
    argument("argument", quotient(), &zeroes);
    check("filtered argument", Some(quotient()), Some(is_not_zero()), &none);
    check("filter of other rows", Some(quotient()), Some(is_zero()), &zeroes);
    argument("branch", case(vec![(is_not_zero(), quotient())], int(0)), &none);
    argument("other branch", case(vec![(is_not_zero(), int(0))], quotient()), &zeroes);
    argument("condition", case(vec![(is_large(), int(1))], int(0)), &zeroes);
    argument("second condition", case(vec![(is_zero(), int(7)), (is_large(), int(1))], int(0)), &none);
    filter("AND", Expr::And(vec![is_not_zero(), is_large()]), &none);
    filter("AND in the other order", Expr::And(vec![is_large(), is_not_zero()]), &zeroes);
    filter("OR", Expr::Or(vec![is_zero(), is_large()]), &none);
    filter("OR in the other order", Expr::Or(vec![is_large(), is_zero()]), &zeroes);
    filter("empty list", in_empty_list(), &zeroes);
    filter("IS NULL", Expr::IsNull(Box::new(quotient())), &zeroes);
    // k2 is NULL in every third row.
    argument("COALESCE", Expr::Coalesce(vec![Expr::Column(KEY_INT), quotient()]), &|id| id % 15 == 0);
    argument("overflow", call(141, Expr::Column(ID), int(1 << 20)), &|id| id >= 1 << 11);
}

/// The bytes of a unit, and the number of bytes that were read.
struct Counted<'a> {
    bytes: &'a [u8],
    read: Cell<usize>,
}

impl ByteSource for Counted<'_> {
    fn length(&self) -> u64 {
        self.bytes.length()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.read.set(self.read.get() + buffer.len());
        self.bytes.read_at(buffer, offset)
    }
}

#[test]
fn aggregates_known_from_the_directory_read_no_data() {
    let Some(cluster) = Cluster::start("aggregate-directory") else { return };
    cluster.sql("create table a as select i, hashint4(i) as n, md5(i::text) as t from generate_series(1, 5000) i");
    let table = Table::open(&cluster, "a");
    let bytes = encode(&table.heap, &table.shape(), Level::QueryLow).unwrap();
    let read = |function: u32, column: Option<u16>, first_page: usize| {
        let aggregation =
            Aggregation { keys: vec![], aggregates: vec![aggregate(function, column)], ..Aggregation::default() };
        let mut scanner = UnitScanner::new(Arc::new(Plan::compile(&table.request(vec![], aggregation)).unwrap()));
        let source = Counted { bytes: &bytes, read: Cell::new(0) };
        let unit = Unit::open(&source).unwrap();
        source.read.set(0);
        let pages = first_page..unit.pages().len();
        scanner.scan(0, &unit, &source, pages, &NoXids, &mut ResultWriter::new()).unwrap();
        source.read.get()
    };
    // count(*), count(t), min(i), max(n)
    for (function, column) in [(2803, None), (2147, Some(3)), (2132, Some(1)), (2116, Some(2))] {
        assert_eq!(read(function, column, 0), 0, "{function} {column:?}");
    }
    // The bounds of a chunk do not apply to a part of the chunk, and a sum needs the numbers.
    assert!(read(2132, Some(2), 1) > 0);
    assert!(read(2108, Some(2), 0) > 0);
}

/// Aggregates over all rows of columns with many encodings, which units compute from directories and packed sums.
#[test]
fn totals_of_units_equal_those_of_heap_pages() {
    let Some(cluster) = Cluster::start("aggregate-totals") else { return };
    cluster.sql(
        "create table a (id int4, i2 int2, i4 int4, i8 int8, wide int8, n numeric, m numeric(12,2), b bool, d date,
                         often int4, t text, late int4);
         insert into a select i, 7, (i * 7919) % 10007 - 5000, 5000000000 + i % 3, hashint8extended(i::int8, 1),
             round((i % 1000) / 10.0, 1), -(i % 10000) / 100.0, i % 5 > 0, date '2020-01-01' + i / 300,
             case when i % 9 > 0 then i end, 'some text',
             case when i > 10000 then i end
         from generate_series(1, 20000) i",
    );
    let table = Table::open(&cluster, "a");
    let all = [
        (aggregate(2803, None), Some(8)),
        (aggregate(2147, Some(11)), Some(8)),
        (aggregate(2147, Some(10)), Some(8)),
        (aggregate(2109, Some(2)), Some(8)),
        (aggregate(2108, Some(3)), Some(8)),
        (aggregate(2101, Some(3)), None),
        (aggregate(2107, Some(4)), None),
        (aggregate(2107, Some(5)), None),
        (aggregate(2114, Some(6)), None),
        (aggregate(2103, Some(7)), None),
        (aggregate(2517, Some(8)), Some(1)),
        (aggregate(2518, Some(8)), Some(1)),
        (aggregate(2138, Some(9)), Some(4)),
        (aggregate(2122, Some(9)), Some(4)),
        (aggregate(2131, Some(5)), Some(8)),
        (aggregate(2115, Some(5)), Some(8)),
        (aggregate(2132, Some(10)), Some(4)),
        (aggregate(2108, Some(10)), Some(8)),
        (aggregate(2108, Some(12)), Some(8)),
        (aggregate(2116, Some(12)), Some(4)),
    ];
    for count in [1, 3] {
        for first in 0..all.len() {
            let chosen = (0..count).map(|step| &all[(first + step * 5) % all.len()]);
            let (aggregates, widths): (Vec<_>, Vec<_>) = chosen.cloned().unzip();
            let answer = table.aggregate(Aggregation { keys: vec![], aggregates, ..Aggregation::default() }, &widths);
            assert_eq!((answer.groups.len(), answer.counted), (1, 20000));
        }
    }
}

/// Groups by a column and by linear functions of the column have one group per value, with NULLs and overflows.
#[test]
fn keys_that_are_functions_of_other_keys_equal_those_of_postgresql() {
    let Some(cluster) = Cluster::start("aggregate-keys") else { return };
    let seed = setting("AGGREGATE_SEED", 1);
    println!("AGGREGATE_SEED={seed}");
    let mut random = Random::new(seed);
    cluster.sql(&format!("create table a ({COLUMNS});\n{}", random_rows(&mut random, 4000)));
    cluster.sql("update a set k2 = 2147483646 where id % 100 = 0");
    let long = |value: i32| Expr::Const { type_oid: 23, value: Some(value.to_le_bytes().to_vec()) };
    let call = |function: u32, left: Expr, right: Expr| Expr::Call {
        function,
        collation: Collation::None,
        args: vec![left, right],
    };
    let k2 = || Expr::Column(KEY_INT);
    let keys = vec![call(181, k2(), long(3)), Expr::Column(KEY_TEXT), call(141, long(-2), k2()), k2()];
    let table = Table::open(&cluster, "a");
    let aggregation = Aggregation { keys, aggregates: vec![aggregate(2803, None)], ..Aggregation::default() };
    let answer = table.aggregate(aggregation, &[Some(4), None, Some(4), Some(4), Some(8)]);
    let mut found: Vec<String> = answer
        .groups
        .iter()
        .map(|group| [int(&group[0]), text(&group[1]), int(&group[2]), int(&group[3]), int(&group[4])].join("|"))
        .collect();
    found.sort();
    let fits = "k2 is null or abs(k2::int8 * -2) < 2147483648 and k2::int8 - 3 > -2147483649";
    let wanted =
        cluster.sql(&format!("select k2 - 3, k1, -2 * k2, k2, count(*) from a where {fits} group by 1, 2, 3, 4"));
    let mut wanted: Vec<&str> = wanted.lines().collect();
    wanted.sort();
    assert_eq!(found, wanted);
    let rejected = cluster.sql(&format!("select count(*) from a where not ({fits})"));
    assert_eq!(answer.rows.len().to_string(), rejected.trim());
    assert!(!answer.rows.is_empty());
}

/// Sums of linear functions of a column equal PostgreSQL's, with and without keys, and rows in which a function overflows are rejected.
/// Without NULLs and overflows, the sums come from totals of whole chunks.
#[test]
fn sums_of_linear_functions_equal_those_of_postgresql() {
    let Some(cluster) = Cluster::start("aggregate-linear") else { return };
    let seed = setting("AGGREGATE_SEED", 1);
    println!("AGGREGATE_SEED={seed}");
    let mut random = Random::new(seed);
    cluster.sql(STATES);
    cluster.sql(&format!("create table a ({COLUMNS});\n{}", random_rows(&mut random, 4000)));
    cluster.sql(&format!(
        "create table whole ({COLUMNS});
         insert into whole (id, k1, i2, i4, i8) select id, 'x', id % 100, id * 7 - 9000, id - 5 from generate_series(1, 9000) id"
    ));
    let long = |value: i32| Expr::Const { type_oid: 23, value: Some(value.to_le_bytes().to_vec()) };
    let short = |value: i16| Expr::Const { type_oid: 21, value: Some(value.to_le_bytes().to_vec()) };
    let call = |function: u32, left: Expr, right: Expr| Expr::Call {
        function,
        collation: Collation::None,
        args: vec![left, right],
    };
    let (i2, i4, i8) = (|| Expr::Column(4), || Expr::Column(5), || Expr::Column(6));
    let sums = [
        (2108, call(178, i2(), long(1)), Some(8)),
        (2101, call(181, call(170, i2(), long(3)), long(7)), None),
        (2108, i4(), Some(8)),
        (2108, call(177, i4(), long(2_000_000_000)), Some(8)),
        (2108, call(177, long(1), i4()), Some(8)),
        (2101, call(141, i4(), long(-1)), None),
        (2109, call(180, i2(), short(5)), Some(8)),
        (2107, call(1274, i8(), long(5)), None),
        (2107, i8(), None),
    ];
    for (name, where_clause) in [
        (
            "a",
            "where coalesce(i4::int8 + 2000000000 < 2147483648 and i4 < 2147483647 and i4 > -2147483648, true)
               and coalesce(i2 >= -32763, true) and coalesce(i8 < 9223372036854775800, true)",
        ),
        ("whole", ""),
    ] {
        let table = Table::open(&cluster, name);
        for keys in [vec![], vec![KEY_TEXT]] {
            let aggregates = sums.iter().map(|(function, argument, _)| Aggregate {
                argument: Some(argument.clone()),
                ..aggregate(*function, None)
            });
            let aggregation = Aggregation {
                keys: keys.iter().map(|key| Expr::Column(*key)).collect(),
                aggregates: aggregates.collect(),
                ..Aggregation::default()
            };
            let widths: Vec<_> = keys.iter().map(|_| None).chain(sums.iter().map(|(.., width)| *width)).collect();
            let answer = table.aggregate(aggregation, &widths);
            let row = |group: &Vec<Datum>| {
                let (key, s) = group.split_at(keys.len());
                let key = key.iter().map(text).collect::<String>();
                let sums = [
                    int(&s[0]),
                    ints(&s[1]),
                    int(&s[2]),
                    int(&s[3]),
                    int(&s[4]),
                    ints(&s[5]),
                    int(&s[6]),
                    hex(&s[7]),
                    hex(&s[8]),
                ];
                format!("{key}|{}", sums.join("|"))
            };
            let mut found: Vec<String> = answer.groups.iter().map(row).collect();
            found.sort();
            let key = if keys.is_empty() { "''" } else { "k1" };
            let group_by = if keys.is_empty() { "" } else { "group by k1" };
            let listing = cluster.sql(&format!(
                "set max_parallel_workers_per_gather = 0;
                 select {key}, sum(i2 + 1), int4_state(i2 * 3 - 7), sum(i4), sum(i4 + 2000000000), sum(1 + i4), int4_state(i4 * -1),
                   sum(i2 - 5::int2), int8_state(i8 + 5), int8_state(i8) from {name} {where_clause} {group_by}"
            ));
            let mut expected: Vec<String> = listing.lines().map(str::to_owned).collect();
            expected.sort();
            assert_eq!(found, expected, "{name}, {keys:?}");
            let all: usize = cluster.sql(&format!("select count(*) from {name}")).trim().parse().unwrap();
            assert_eq!(answer.rows.len() + answer.counted as usize, all);
            assert_eq!(answer.rows.is_empty(), name == "whole");
        }
    }
}

/// A column of a lookup table. Bytes are those of the value on the wire, without the length of a varlena.
fn lookup_column(type_oid: u32, typmod: i32, width: Width, values: &[Option<Vec<u8>>]) -> LookupColumn {
    let attribute = Attribute { type_oid, typmod, width, align: Align::Int, by_value: false, missing: Missing::Null };
    let mut column = LookupColumn { attribute, nulls: Vec::new(), values: Vec::new() };
    for value in values {
        let bytes = value.as_deref();
        column.nulls.push(u8::from(bytes.is_none()));
        match width {
            Width::Fixed(width) => column.values.extend(bytes.map_or(vec![0; width as usize], <[u8]>::to_vec)),
            _ => {
                let bytes = bytes.unwrap_or_default();
                column.values.extend((bytes.len() as u32).to_le_bytes());
                column.values.extend(bytes);
            }
        }
    }
    column
}

#[test]
fn rows_are_joined_with_lookup_tables_as_postgresql_joins_them() {
    let Some(cluster) = Cluster::start("aggregate-lookup") else { return };
    let mut random = Random::new(setting("AGGREGATE_SEED", 1));
    cluster.sql(&format!("create table a ({COLUMNS});\n{}", random_rows(&mut random, 9000)));
    // Table d is joined by id, table e by k2, which is NULL in some rows. Keys 40 to 42 of d occur twice, key 2 of e three times.
    cluster.sql(
        "create table d (key int8, name text collate \"C\", number int8, price numeric(9,2), free numeric);
         insert into d select i * 3, case when i % 7 > 0 then 'name ' || i % 20 end, case when i % 11 > 0 then i - 500 end,
           i * 1.25, (i % 5) / 4.0 from generate_series(1, 2000) i;
         insert into d select i, 'twice', 1, 1, 1 from generate_series(40, 42) i, generate_series(1, 1 + i % 2) j;
         create table e (key int4, label text collate \"C\");
         insert into e values (-1, 'minus'), (0, null), (2, 'x'), (2, 'y'), (2, 'x'), (77, 'unused')",
    );
    let table = Table::open(&cluster, "a");
    let column = |query: &str| -> Vec<Option<String>> {
        let cell = |line: &str| (line != "null").then(|| line.to_owned());
        cluster.sql(query).lines().map(cell).collect()
    };
    let of = |table: &str, column: &str| format!("select coalesce({column}::text, 'null') from {table} order by ctid");
    let keys = |table: &str| -> Vec<i64> {
        column(&of(table, "key")).into_iter().map(|key| key.unwrap().parse().unwrap()).collect()
    };
    let texts = |table: &str, name: &str| -> Vec<Option<Vec<u8>>> {
        column(&of(table, name)).into_iter().map(|text| text.map(String::into_bytes)).collect()
    };
    let numbers: Vec<Option<Vec<u8>>> = column(&of("d", "number"))
        .into_iter()
        .map(|text| text.map(|text| text.parse::<i64>().unwrap().to_le_bytes().to_vec()))
        .collect();
    let numerics = |name: &str| -> Vec<Option<Vec<u8>>> {
        let sent = column(&of("d", &format!("encode(numeric_send({name}), 'hex')")));
        sent.into_iter().map(|hex| Some(stored_numeric(&hex.unwrap()))).collect()
    };
    let d = Lookup {
        kind: JoinKind::Inner,
        comparison: None,
        attributes: vec![1],
        keys: keys("d"),
        columns: vec![
            lookup_column(25, -1, Width::Varlena, &texts("d", "name")),
            lookup_column(20, -1, Width::Fixed(8), &numbers),
            lookup_column(1700, (9 << 16 | 2) + 4, Width::Varlena, &numerics("price")),
            lookup_column(1700, -1, Width::Varlena, &numerics("free")),
        ],
    };
    let e = Lookup {
        kind: JoinKind::Inner,
        comparison: None,
        attributes: vec![KEY_INT],
        keys: keys("e"),
        columns: vec![lookup_column(25, -1, Width::Varlena, &texts("e", "label"))],
    };
    let (name, number, price, free) = (13, 14, 15, 16);
    let both = |first: Lookup, second: Lookup| vec![first, second];
    let left = |table: &Lookup| Lookup { kind: JoinKind::Left, ..table.clone() };
    let only_keys = |kind, table: &Lookup| Lookup { kind, columns: vec![], ..table.clone() };
    // The parts of the key of `pairs` are a column of d and a column of the relation; d has to be the first table.
    let pairs = Lookup {
        kind: JoinKind::Inner,
        comparison: None,
        attributes: vec![number, KEY_INT],
        keys: (-500..1500).flat_map(|number| [number, number % 3 - 1]).chain([7, 0, 7, 0]).collect(),
        columns: vec![],
    };
    // number / k2 > 0, which raises an error if k2 is 0.
    let quotient = Expr::Call {
        function: 1277,
        collation: Collation::None,
        args: vec![Expr::Column(number), Expr::Column(KEY_INT)],
    };
    let zero = Expr::Const { type_oid: 20, value: Some(vec![0; 8]) };
    let positive = Expr::Call { function: 470, collation: Collation::None, args: vec![quotient, zero] };
    let d_id = "join d on id = d.key";
    let pair = "(select generate_series(-500, 1499) union all values (7), (7)) p(pair)";
    let cases = [
        ("name", vec![name], d_id.to_owned(), vec![d.clone()]),
        ("k1, name", vec![KEY_TEXT, name], d_id.to_owned(), vec![d.clone()]),
        ("k2, label", vec![KEY_INT, 17], format!("{d_id} join e on k2 = e.key"), both(d.clone(), e.clone())),
        ("label", vec![17], format!("{d_id} join e on k2 = e.key"), both(d.clone(), e.clone())),
        ("name", vec![name], format!("left {d_id}"), vec![left(&d)]),
        ("k2, label", vec![KEY_INT, 17], format!("left {d_id} left join e on k2 = e.key"), both(left(&d), left(&e))),
        (
            "name",
            vec![name],
            format!("{d_id} and k2 in (select key from e)"),
            both(d.clone(), only_keys(JoinKind::Semi, &e)),
        ),
        (
            "name",
            vec![name],
            format!("{d_id} where not exists (select from e where e.key = k2)"),
            both(d.clone(), only_keys(JoinKind::Anti, &e)),
        ),
        (
            "name",
            vec![name],
            format!("left {d_id} where not exists (select from {pair} where pair = number and pair % 3 - 1 = k2)"),
            both(left(&d), only_keys(JoinKind::Anti, &pairs)),
        ),
        (
            "name",
            vec![name],
            format!("{d_id} join {pair} on pair = number and pair % 3 - 1 = k2"),
            both(d.clone(), pairs.clone()),
        ),
    ];
    // Two rows per number, and the second part is compared with k2.
    let compared = |kind, comparison| Lookup {
        kind,
        comparison: Some(comparison),
        keys: (-500..1500).flat_map(|number| [number, number % 3 - 1, number, number % 5 - 2]).collect(),
        ..pairs.clone()
    };
    let comparisons = [
        ("<>", Comparison::NotEqual),
        ("<", Comparison::Less),
        ("<=", Comparison::LessOrEqual),
        (">", Comparison::Greater),
        (">=", Comparison::GreaterOrEqual),
    ];
    let cases = cases.into_iter().chain(comparisons.iter().flat_map(|(operator, comparison)| {
        let partner = format!(
            "exists (select from generate_series(-500, 1499) n, lateral (values (n % 3 - 1), (n % 5 - 2)) v(v)
             where n = number and k2 {operator} v)"
        );
        let case = |kind, condition: String, d| ("name", vec![name], condition, both(d, compared(kind, *comparison)));
        [
            case(JoinKind::Semi, format!("{d_id} where {partner}"), d.clone()),
            case(JoinKind::Anti, format!("{d_id} where not {partner}"), d.clone()),
            case(JoinKind::Anti, format!("left {d_id} where not {partner}"), left(&d)),
        ]
    }));
    let cases: Vec<_> = cases.collect();
    // A row of the scan is returned if the condition raises an error for one of its partners.
    let conditions =
        [(vec![], "true", "false"), (vec![positive], "number / nullif(k2, 0) > 0", "k2 = 0 and number is not null")];
    let several = cluster.sql(&format!("select count(*) - count(distinct id) from a {d_id} join e on k2 = e.key"));
    assert!(several.trim().parse::<i64>().unwrap() > 20, "rows have several partners");
    for ((group_by, keys, joins, lookups), (condition, wanted, raises)) in
        cases.iter().flat_map(|case| conditions.iter().map(move |condition| (case, condition)))
    {
        let aggregation = Aggregation {
            conditions: condition.clone(),
            keys: keys.iter().map(|key| Expr::Column(*key)).collect(),
            aggregates: vec![
                aggregate(2803, None),
                aggregate(2109, Some(4)),
                aggregate(2147, Some(number)),
                aggregate(2115, Some(number)),
                aggregate(2129, Some(name)),
                aggregate(2147, Some(price)),
                aggregate(2147, Some(free)),
            ],
            ..Aggregation::default()
        };
        let request = ScanRequest { lookups: lookups.clone(), ..table.request(vec![], aggregation) };
        let mut widths: Vec<_> = keys.iter().map(|key| (*key == KEY_INT).then_some(4)).collect();
        widths.extend([Some(8), Some(8), Some(8), Some(8), None, Some(8), Some(8)]);
        let answer = table.answer(&request, &widths);
        let show = |datum: &Datum, width: &Option<usize>| match (datum, width) {
            (None, _) => "null".to_owned(),
            (datum, Some(_)) => int(datum),
            (datum, None) => text(datum),
        };
        let mut found: Vec<String> = answer
            .groups
            .iter()
            .map(|group| {
                group.iter().zip(&widths).map(|(datum, width)| show(datum, width)).collect::<Vec<_>>().join("|")
            })
            .collect();
        found.sort();
        let and = if joins.contains(" where ") { "and" } else { "where" };
        let from = format!("a {joins} {and}");
        let shown = |columns: &[&str]| {
            let columns: Vec<_> = columns.iter().map(|column| format!("coalesce(({column})::text, 'null')")).collect();
            columns.join(", ")
        };
        let mut columns: Vec<&str> = group_by.split(", ").collect();
        columns.extend([
            "count(*)",
            "sum(i2)",
            "count(number)",
            "max(number)",
            "max(name)",
            "count(price)",
            "count(free)",
        ]);
        let returned = format!("select distinct id from {from} {raises}");
        let mut expected: Vec<String> = cluster
            .sql(&format!(
                "select {} from {from} {wanted} and id not in ({returned}) group by {group_by}",
                shown(&columns)
            ))
            .lines()
            .map(str::to_owned)
            .collect();
        expected.sort();
        assert_eq!(found, expected, "group by {group_by}, {joins}, {wanted}");
        assert!(found.len() >= 2 || joins.contains("lateral"));
        let mut ids: Vec<i64> = answer.rows.iter().map(|row| int(&row[0]).parse().unwrap()).collect();
        ids.sort_unstable();
        let expected: Vec<i64> =
            cluster.sql(&format!("{returned} order by id")).lines().map(|id| id.parse().unwrap()).collect();
        assert_eq!(ids, expected, "returned rows, {joins}, {wanted}");
        assert!(expected.is_empty() || *raises != "false");
    }
    // Without conditions and group keys, left joins and antijoins are still joins.
    for (kind, joined) in [(JoinKind::Left, "true"), (JoinKind::Anti, "e.key is null")] {
        let lookups = vec![only_keys(kind, &e)];
        let aggregates = vec![aggregate(2803, None), aggregate(2108, Some(5))];
        let sums = Aggregation { keys: vec![], aggregates, ..Aggregation::default() };
        let answer = table.answer(&ScanRequest { lookups, ..table.request(vec![], sums) }, &[Some(8), Some(8)]);
        let expected =
            cluster.sql(&format!("select count(*), sum(i4) from a left join e on k2 = e.key where {joined}"));
        let found = answer.groups.iter().map(|group| format!("{}|{}", int(&group[0]), int(&group[1])));
        assert_eq!(found.collect::<Vec<_>>(), [expected.trim()], "{kind:?}");
    }
    // All rows of d have partners in a, and none of an empty table.
    let empty = Lookup { attributes: vec![1], keys: Vec::new(), columns: Vec::new(), ..d.clone() };
    let count = Aggregation { keys: vec![], aggregates: vec![aggregate(2803, None)], ..Aggregation::default() };
    let request = ScanRequest { lookups: vec![empty], ..table.request(vec![], count.clone()) };
    let answer = table.answer(&request, &[Some(8)]);
    assert!(answer.groups.is_empty() && answer.rows.is_empty());
    // A unit has no tuples, so a scan that returns rejected rows as tuples does not aggregate in encoded form.
    let whole = ScanRequest {
        mode: ScanMode::Rows,
        projection: vec![],
        lookups: vec![d.clone()],
        ..table.request(vec![], count.clone())
    };
    let (mut scanner, mut out) = (UnitScanner::new(Arc::new(Plan::compile(&whole).unwrap())), ResultWriter::new());
    for (index, bytes) in table.units(Level::QueryLow).iter().enumerate() {
        let unit = Unit::open(bytes).unwrap();
        let first = (index * UNIT_PAGES) as u32;
        scanner.scan(first, &unit, bytes, 0..UNIT_PAGES, &NoXids, &mut out).unwrap();
    }
    scanner.finish_range(&mut out);
    out.flush();
    let answer = read_with_groups(out.frames(), &[], &[Some(8)]);
    let joined = cluster.sql("select count(*) from a where id in (select key from d)");
    assert_eq!((answer.tuples.len().to_string(), answer.groups.len()), (joined.trim().to_owned(), 0));
    // Lookup tables need an aggregation, and keys are integers, dates or timestamps of the relation.
    let wrong = [
        ScanRequest { aggregation: None, ..request.clone() },
        ScanRequest { lookups: vec![Lookup { attributes: vec![KEY_TEXT], ..d.clone() }], ..request.clone() },
        ScanRequest { lookups: vec![Lookup { attributes: vec![13], ..d.clone() }], ..request.clone() },
        ScanRequest { lookups: vec![Lookup { comparison: Some(Comparison::Less), ..d }], ..request },
    ];
    assert!(wrong.iter().all(|request| Plan::compile(request).is_err()));
}

#[test]
fn a_row_is_joined_with_all_partners_or_returned() {
    let Some(cluster) = Cluster::start("aggregate-partners") else { return };
    cluster.sql(&format!(
        "create table a ({COLUMNS}); insert into a (id, k2) select i, i % 5 from generate_series(1, 3000) i"
    ));
    let table = Table::open(&cluster, "a");
    let int4 = |value: i32| Some(value.to_le_bytes().to_vec());
    // Partners of key i: `counts[i]`. The columns are the partner's number and a numeric.
    let lookup = |attribute: u16, counts: [usize; 5], numeric: &dyn Fn(usize) -> String| {
        let partners: Vec<(usize, usize)> =
            counts.iter().enumerate().flat_map(|(key, count)| (0..*count).map(move |partner| (key, partner))).collect();
        let numerics: Vec<String> = partners.iter().map(|(_, partner)| numeric(*partner)).collect();
        let hex = cluster.sql(&format!(
            "select encode(numeric_send(n), 'hex') from unnest(array[{}]::numeric[]) with ordinality u(n, o) order by o",
            numerics.join(", ")
        ));
        let stored: Vec<_> = hex.lines().map(|hex| Some(stored_numeric(hex))).collect();
        let numbers: Vec<_> = partners.iter().map(|(_, partner)| int4(*partner as i32)).collect();
        Lookup {
            kind: JoinKind::Inner,
            comparison: None,
            attributes: vec![attribute],
            keys: partners.iter().map(|(key, _)| *key as i64).collect(),
            columns: vec![
                lookup_column(23, -1, Width::Fixed(4), &numbers),
                lookup_column(1700, -1, Width::Varlena, &stored),
            ],
        }
    };
    let one = |_: usize| "1.5".to_owned();
    let nan = |partner: usize| if partner == 30 { "'NaN'".to_owned() } else { "2".to_owned() };
    // The rows of each key, 600, times the combinations of their partners; keys whose rows are returned.
    let check = |lookups: Vec<Lookup>, joined: [usize; 5], returned: &[i64]| {
        let aggregates = vec![aggregate(2803, None), aggregate(2108, Some(13)), aggregate(2114, Some(14))];
        let keys = vec![Expr::Column(KEY_INT)];
        let sums = Aggregation { keys, aggregates, ..Aggregation::default() };
        let request = ScanRequest { lookups, ..table.request(vec![], sums) };
        let answer = table.answer(&request, &[Some(4), Some(8), Some(8), None]);
        // A group all of whose rows are rejected has no rows.
        let found: Vec<(String, String)> = answer.groups.iter().map(|group| (int(&group[0]), int(&group[1]))).collect();
        let found: Vec<(String, String)> = found.into_iter().filter(|(_, count)| count != "0").collect();
        let expected: Vec<(String, String)> = joined
            .iter()
            .enumerate()
            .filter(|(_, combinations)| **combinations > 0)
            .map(|(key, combinations)| (key.to_string(), (600 * combinations).to_string()))
            .collect();
        assert_eq!(found, expected);
        let mut ids: Vec<i64> = answer.rows.iter().map(|row| int(&row[0]).parse().unwrap()).collect();
        ids.sort_unstable();
        let expected: Vec<i64> = (1..=3000).filter(|id| returned.contains(&(id % 5))).collect();
        assert_eq!(ids, expected);
    };
    check(vec![lookup(KEY_INT, [0, 1, 2, 33, 1024], &one)], [0, 1, 2, 33, 1024], &[]);
    check(vec![lookup(KEY_INT, [0, 1, 1025, 33, 2], &one)], [0, 1, 0, 33, 2], &[2]);
    // The 31st partner has a NaN, which the cell does not add up.
    check(vec![lookup(KEY_INT, [1, 30, 31, 0, 100], &nan)], [1, 30, 0, 0, 0], &[2, 4]);
    let product = vec![lookup(KEY_INT, [1, 3, 32, 33, 0], &one), lookup(KEY_INT, [0, 2, 32, 32, 5], &nan)];
    let second = Lookup { columns: vec![], ..product[1].clone() };
    check(vec![product[0].clone(), second], [0, 6, 1024, 0, 0], &[3]);
    check(product, [0, 6, 1024, 0, 0], &[3]);
}

/// The payload of a numeric datum, from the hexadecimal digits of its external binary form.
fn stored_numeric(hex: &str) -> Vec<u8> {
    let words: Vec<u16> =
        (0..hex.len()).step_by(4).map(|at| u16::from_str_radix(&hex[at..at + 4], 16).unwrap()).collect();
    let (weight, sign, scale) = (words[1], words[2], words[3]);
    // The long format: sign and scale, weight, digits.
    let mut stored = vec![sign | scale, weight];
    stored.extend(&words[4..]);
    stored.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn rows_that_cannot_be_aggregated_are_rejected() {
    let Some(cluster) = Cluster::start("aggregate-back") else { return };
    cluster.sql(&format!(
        "create table a ({COLUMNS}); insert into a (id, k2, n, f) select i, i, i, i from generate_series(1, 2000) i;
         update a set n = 'NaN' where id = 5; update a set n = 'infinity' where id = 6;
         update a set n = 1e60 where id = 7; update a set n = 1e-60 where id = 8; update a set k2 = 2147483647 where id = 9;
         update a set f = 'NaN' where id = 10; update a set f = 1.7e308 where id = 11; update a set k2 = null where id = 12;"
    ));
    let table = Table::open(&cluster, "a");
    let rejected = |aggregation: Aggregation| {
        let widths = vec![None; aggregation.keys.len() + aggregation.aggregates.len()];
        let answer = table.aggregate(aggregation, &widths);
        let mut ids: Vec<String> = answer.rows.iter().map(|row| int(&row[0])).collect();
        ids.sort_by_key(|id| id.parse::<i64>().unwrap());
        ids.join(" ")
    };
    let only = |aggregate| Aggregation { keys: vec![], aggregates: vec![aggregate], ..Aggregation::default() };
    assert_eq!(rejected(only(aggregate(2114, Some(7)))), "5 6 7 8");
    assert_eq!(rejected(only(aggregate(2105, Some(9)))), "10 11");
    // k2 + 1 is an error in row 9, and NULL in row 12.
    let one = Expr::Const { type_oid: 23, value: Some(1i32.to_le_bytes().to_vec()) };
    let next = Expr::Call { function: 177, collation: Collation::None, args: vec![Expr::Column(KEY_INT), one] };
    let average = Aggregate { argument: Some(next.clone()), ..aggregate(2101, None) };
    assert_eq!(rejected(only(average.clone())), "9");
    // Arguments of rows that fail the filter are not evaluated.
    let filter = Expr::Call {
        function: 66,
        collation: Collation::None,
        args: vec![Expr::Column(KEY_INT), Expr::Const { type_oid: 23, value: Some(1000i32.to_le_bytes().to_vec()) }],
    };
    assert_eq!(rejected(only(Aggregate { filter: Some(filter), ..average })), "");
}

/// A sort key over output `output`.
fn order(output: u16, less: u32, descending: bool, nulls_first: bool) -> SortKey {
    SortKey { expr: Expr::Column(output), less, collation: Collation::Bytewise, descending, nulls_first }
}

/// Merges groups by several threads and returns the frames of each.
fn merge_in_threads(merge: &GroupMerge<'_>, threads: usize) -> Vec<Vec<u8>> {
    let run = || {
        let mut out = ResultWriter::new();
        let send = &mut |_: &mut ResultWriter| Ok::<_, ()>(());
        merge.run(&mut out, send).unwrap();
        out.flush();
        out.frames().to_vec()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn merged_groups_are_pruned_as_postgresql_sorts_and_filters_them() {
    const INT2_LT: u32 = 64;
    const TEXT_LT: u32 = 740;
    const INT8_LT: u32 = 469;
    const INT8_GT: u32 = 470;
    const NUMERIC_LT: u32 = 1722;
    const DATE_LT: u32 = 1087;
    let Some(cluster) = Cluster::start("pruning") else { return };
    cluster.sql(STATES);
    cluster.sql(&format!("create table a ({COLUMNS})"));
    let mut random = Random::new(setting("AGGREGATE_SEED", 1));
    cluster.sql(&random_rows(&mut random, 5000));
    cluster.sql("insert into a select * from a where id % 3 = 0; insert into a select * from a where id % 15 = 0; vacuum freeze a");
    let table = Table::open(&cluster, "a");
    let aggregates = vec![
        aggregate(2803, None),
        aggregate(2108, Some(5)),
        aggregate(2107, Some(6)),
        aggregate(2114, Some(7)),
        aggregate(2101, Some(5)),
        aggregate(2103, Some(7)),
        aggregate(2138, Some(11)),
        aggregate(2129, Some(12)),
    ];
    let widths = [None, Some(2), Some(8), Some(8), None, None, None, None, Some(4), None];
    let keys = [order(1, TEXT_LT, false, false), order(2, INT2_LT, false, false)];
    let greater = |output, function, type_oid, value: &[u8]| Expr::Call {
        function,
        collation: Collation::None,
        args: vec![Expr::Column(output), Expr::Const { type_oid, value: Some(value.to_vec()) }],
    };
    let (two, hundred) = (2i64.to_le_bytes(), [0x00, 0x80, 100, 0]);
    // Each case: HAVING, ORDER BY before the group keys, and both as a pruning.
    let cases: [(&str, &str, Vec<Expr>, Vec<SortKey>); 9] = [
        ("true", "count(*) desc", vec![], vec![order(3, INT8_LT, true, true)]),
        ("true", "sum(i4) nulls first", vec![], vec![order(4, INT8_LT, false, true)]),
        (
            "count(*) > 2",
            "sum(i8) desc nulls last",
            vec![greater(3, INT8_GT, 20, &two)],
            vec![order(5, NUMERIC_LT, true, false)],
        ),
        ("sum(n) > 100", "sum(n)", vec![greater(6, 1720, 1700, &hundred)], vec![order(6, NUMERIC_LT, false, false)]),
        (
            "true",
            "count(*), avg(i4) desc",
            vec![],
            vec![order(3, INT8_LT, false, false), order(7, NUMERIC_LT, true, true)],
        ),
        ("avg(n) > 100", "avg(n)", vec![greater(8, 1720, 1700, &hundred)], vec![order(8, NUMERIC_LT, false, false)]),
        ("true", "min(d) desc nulls last", vec![], vec![order(9, DATE_LT, true, false)]),
        (
            "true",
            "max(t) desc, count(*)",
            vec![],
            vec![order(10, TEXT_LT, true, true), order(3, INT8_LT, false, false)],
        ),
        ("true", "", vec![], vec![]),
    ];
    for (having, order_by, conditions, first_keys) in cases {
        for groups in [1, 10, 700, 10_000] {
            let with_ties = groups == 10;
            let mut sort_keys = first_keys.clone();
            if !with_ties || sort_keys.is_empty() {
                sort_keys.extend(keys.clone());
            }
            let pruning = GroupPruning {
                conditions: conditions.clone(),
                top: Some(TopGroups { groups, with_ties, keys: sort_keys }),
            };
            let aggregation = Aggregation {
                keys: vec![Expr::Column(KEY_TEXT), Expr::Column(4)],
                aggregates: aggregates.clone(),
                pruning: Some(pruning),
                ..Aggregation::default()
            };
            let plan = Arc::new(Plan::compile(&table.request(vec![], aggregation)).unwrap());
            // `workers`: threads that merge partitions of the groups; 0: all groups are merged at once.
            let scan = |complete: bool, threads: usize, workers: usize| {
                let mut scanners: Vec<Scanner> = (0..threads).map(|_| Scanner::new(Arc::clone(&plan))).collect();
                let mut out = ResultWriter::new();
                for (index, run) in table.heap.chunks(4 * BLOCK_BYTES).enumerate() {
                    let scanner = &mut scanners[index % threads];
                    scanner.scan(index as u32 * 4, run, &NoXids, &mut out, false);
                }
                assert!(!out.has_results());
                let aggregation = plan.aggregation().unwrap();
                let aggregators = scanners.iter_mut().filter_map(Scanner::aggregator).collect();
                let groups_min = if workers == 0 { usize::MAX } else { 16 };
                let frames = match GroupMerge::with_groups_min(aggregation, aggregators, complete, groups_min) {
                    Ok(merge) => {
                        let outs = merge_in_threads(&merge, workers);
                        drop(merge);
                        let discard = |aggregator: &mut Aggregator| aggregator.discard(aggregation);
                        scanners.iter_mut().filter_map(Scanner::aggregator).for_each(discard);
                        outs.concat()
                    }
                    Err(aggregators) => {
                        assert!(workers == 0, "groups are merged in partitions");
                        let send = &mut |_: &mut ResultWriter| Ok::<_, ()>(());
                        Aggregator::finish_all(aggregators, aggregation, complete, &mut out, send).unwrap();
                        out.flush();
                        out.frames().to_vec()
                    }
                };
                let mut groups = read_with_groups(&frames, &[Some(4)], &widths).groups;
                groups.sort();
                groups
            };
            let all = scan(false, 1, 0);
            for workers in [0, 1, 2] {
                assert_eq!(scan(false, 3, workers), all, "three threads' groups are merged to those of one thread");
            }
            let comma = if order_by.is_empty() { "" } else { ", " };
            let limit = match with_ties && !order_by.is_empty() {
                true => format!("order by {order_by} fetch first {groups} rows with ties"),
                false => format!("order by {order_by}{comma}k1 collate \"C\", i2 limit {groups}"),
            };
            let expected = cluster.sql(&format!(
                "select coalesce(k1, 'NULL') || ':' || coalesce(i2::text, '') from (select k1, i2 from a group by k1, i2 having {having} {limit}) s"
            ));
            let mut expected: Vec<&str> = expected.lines().collect();
            expected.sort_unstable();
            for (threads, workers) in [(1, 0), (3, 0), (3, 1), (3, 2)] {
                let pruned = scan(true, threads, workers);
                assert!(pruned.iter().all(|group| all.binary_search(group).is_ok()), "states are unchanged");
                let name = |group: &Vec<Datum>| match &group[0] {
                    None => format!("NULL:{}", int(&group[1])),
                    key => format!("{}:{}", text(key), int(&group[1])),
                };
                let mut found: Vec<String> = pruned.iter().map(name).collect();
                found.sort_unstable();
                if workers > 1 || workers == 1 && with_ties {
                    // Each thread returns its first groups; partitions return those with ties.
                    found.retain(|group| expected.binary_search(&group.as_str()).is_ok());
                }
                assert_eq!(found, expected, "{having}, {limit}, {threads} threads, {workers} workers");
            }
        }
    }
}

#[test]
fn distinct_values_are_counted_as_postgresql_does() {
    const INT8_LT: u32 = 469;
    let Some(cluster) = Cluster::start("distinct") else { return };
    cluster.sql(&format!("create table a ({COLUMNS})"));
    let mut random = Random::new(setting("AGGREGATE_SEED", 1));
    cluster.sql(&random_rows(&mut random, 700));
    // Consecutive rows with equal values, in different groups.
    cluster.sql(
        "insert into a (id, k1, k2, i2, i8, t, b) select i, 'k', i, 5, 5, 'same', true from generate_series(1, 9) i",
    );
    cluster.sql("insert into a select * from a where id % 3 = 0; insert into a select * from a where id % 15 = 0; vacuum freeze a");
    let table = Table::open(&cluster, "a");
    let key_names = [("k1", KEY_TEXT, None), ("k2", KEY_INT, Some(4))];
    // Name, attribute number and width of the argument; whether it has a sum and an average.
    let arguments =
        [("k2", 3, Some(4), true), ("i2", 4, Some(2), true), ("i8", 6, Some(8), false), ("t", 12, None, false)];
    let (mut complete_groups, mut merged_sets, mut merged_groups, mut pruned_merges) = (0, 0, 0, 0);
    for (keys, (name, number, width, is_number), is_filtered) in [&key_names[..0], &key_names[1..], &key_names]
        .into_iter()
        .flat_map(|keys| arguments.map(|argument| (keys, argument)))
        .flat_map(|(keys, argument)| [(keys, argument, false), (keys, argument, true)])
    {
        let functions = match (is_number, width) {
            (true, Some(2)) => vec![2147, 2109, 2102],
            (true, _) => vec![2147, 2108, 2101],
            (false, _) => vec![2147],
        };
        let distinct = DistinctAggregates {
            argument: Expr::Column(number),
            filter: is_filtered.then_some(Expr::Column(10)),
            functions: functions.clone(),
        };
        let top =
            TopGroups { groups: 3, with_ties: true, keys: vec![order(keys.len() as u16 + 3, INT8_LT, true, true)] };
        let aggregation = |pruning| Aggregation {
            keys: keys.iter().map(|key| Expr::Column(key.1)).collect(),
            aggregates: vec![aggregate(2803, None), aggregate(2108, Some(5))],
            distinct: Some(distinct.clone()),
            pruning,
            ..Aggregation::default()
        };
        let key_widths: Vec<_> = keys.iter().map(|key| key.2).collect();
        let states = [Some(8), Some(8)];
        let show = |groups: &[Vec<Datum>], at: usize| -> Vec<Vec<String>> {
            let key = |datum: &Datum, width: Option<usize>| if width.is_none() { text(datum) } else { int(datum) };
            let row = |group: &Vec<Datum>| {
                let keys = group.iter().zip(&key_widths).map(|(datum, width)| key(datum, *width));
                let states = group[at..].iter().enumerate().map(|(number, datum)| match number {
                    4 => ints(datum),
                    _ => int(datum),
                });
                keys.chain(states).collect()
            };
            groups.iter().map(row).collect()
        };

        // Without all rows in the groups: a row for each value.
        let widths: Vec<Option<usize>> =
            [&key_widths[..], &[width], if is_filtered { &[Some(1)] } else { &[] }, &states].concat();
        let answer = table.aggregate(aggregation(None), &widths);
        let mut counts: BTreeMap<Vec<Datum>, (i64, i64)> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for group in &answer.groups {
            let (value, rows) = (&group[keys.len()], int(&group[widths.len() - 2]).parse::<i64>().unwrap());
            let known = counts.entry(group[..keys.len()].to_vec()).or_default();
            *known = (known.0 + rows, known.1 + i64::from(value.is_some()));
            assert!(seen.insert(group[..=keys.len()].to_vec()), "a value of a group has one row");
            if is_filtered {
                assert_eq!(group[keys.len() + 1].is_some(), value.is_some());
            }
        }

        let column_list: String = keys.iter().map(|key| format!("{}, ", key.0)).collect();
        let filter = if is_filtered { " filter (where b)" } else { "" };
        let calls = match is_number {
            true => format!(
                "count(distinct {name}){filter}, sum(distinct {name}){filter}, '{{' || count(distinct {name}){filter} || ',' || coalesce(sum(distinct {name}){filter}, 0) || '}}'"
            ),
            false => format!("count(distinct {name}){filter}"),
        };
        let group_by =
            if keys.is_empty() { String::new() } else { format!("group by {}", column_list.trim_end_matches(", ")) };
        let expected = |rest: &str| {
            let listing =
                cluster.sql(&format!("select {column_list}count(*), sum(i4), {calls} from a {group_by} {rest}"));
            let mut rows: Vec<Vec<String>> =
                listing.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect();
            rows.sort();
            rows
        };
        let all = expected("");
        let mut found: Vec<Vec<String>> = Vec::new();
        for (key, (rows, values)) in &counts {
            let mut row = show(std::slice::from_ref(key), keys.len()).remove(0);
            row.extend([rows.to_string(), values.to_string()]);
            found.push(row);
        }
        found.sort();
        let mut wanted: Vec<Vec<String>> = all.clone();
        wanted.iter_mut().for_each(|row| {
            row.truncate(keys.len() + 3);
            row.remove(keys.len() + 1);
        });
        assert_eq!(found, wanted, "{name}, {group_by}, {filter}");

        // With all rows in the groups of one or several threads: the states of the aggregates with DISTINCT.
        let function_widths = [Some(8), Some(8), None];
        let widths: Vec<_> = [&key_widths[..], &states, &function_widths[..functions.len()]].concat();
        for pruning in [None, (!keys.is_empty()).then(|| GroupPruning { conditions: vec![], top: Some(top.clone()) })] {
            let rest = if pruning.is_some() {
                format!("order by count(distinct {name}){filter} desc fetch first 3 rows with ties")
            } else {
                String::new()
            };
            let plan = Arc::new(Plan::compile(&table.request(vec![], aggregation(pruning))).unwrap());
            // `workers`: threads that merge partitions of the values; 0: all sets are merged at once.
            for (threads, workers) in [(1, 0), (3, 0), (3, 1), (3, 2)] {
                let mut scanners: Vec<Scanner> = (0..threads).map(|_| Scanner::new(Arc::clone(&plan))).collect();
                let mut out = ResultWriter::new();
                for (index, run) in table.heap.chunks(4 * BLOCK_BYTES).enumerate() {
                    scanners[index % threads].scan(index as u32 * 4, run, &NoXids, &mut out, false);
                }
                let aggregation = plan.aggregation().unwrap();
                let aggregators: Vec<_> = scanners.iter_mut().filter_map(Scanner::aggregator).collect();
                let groups_min = if workers == 0 { usize::MAX } else { 16 };
                let (mut frames, mut aggregators) =
                    match GroupMerge::with_groups_min(aggregation, aggregators, true, groups_min) {
                        Ok(merge) => (merge_in_threads(&merge, workers).concat(), Vec::new()),
                        Err(aggregators) => (Vec::new(), aggregators),
                    };
                let by_groups = aggregators.is_empty();
                merged_groups += usize::from(by_groups);
                if workers > 0 {
                    Aggregator::merge_distinct_from(aggregation, &mut aggregators, 16, |merge| {
                        merged_sets += 1;
                        std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(|| merge.run()))));
                    });
                }
                let send = &mut |_: &mut ResultWriter| Ok::<_, ()>(());
                Aggregator::finish_all(aggregators, aggregation, true, &mut out, send).unwrap();
                out.flush();
                frames.extend_from_slice(out.frames());
                let mut found = show(&read_with_groups(&frames, &[Some(4)], &widths).groups, keys.len());
                found.sort();
                let case = format!("{name}, {group_by}, {filter}, {rest}, {threads} threads, {workers} workers");
                let expected = expected(&rest);
                if by_groups && !rest.is_empty() {
                    // Each partition returns its first groups.
                    assert!(found.len() <= all.len(), "{case}: {} groups", found.len());
                    pruned_merges += usize::from(found.len() < all.len());
                    found.retain(|row| expected.contains(row));
                }
                assert_eq!(found, expected, "{case}");
                complete_groups += found.len();
            }
        }
    }
    assert!(
        complete_groups > 200 && merged_sets > 20 && merged_groups > 20 && pruned_merges > 4,
        "{complete_groups} groups, {merged_sets} merges in partitions of values, {merged_groups} of groups, {pruned_merges} pruned"
    );
}
