//! Scans of the leaf pages of PostgreSQL's B-trees, compared with PostgreSQL's rows.
//!
//! `CELLAR_SEED` and `CELLAR_CASES` choose the random conditions.

use crate::support::cluster::Cluster;
use crate::support::generator::Generator;
use crate::support::reader::{Answer, Datum, read};
use crate::support::{Random, setting};
use cellar_format::postgres::{Align, Width, encoding};
use cellar_format::units::BLOCK_BYTES;
use cellar_format::wire::{
    Attribute, Expr, HeapTid, IndexScan, LeafLinks, Missing, Relation, ScanMode, ScanRequest, Snapshot,
};
use cellar_scan::{NoXids, Plan, Progress, ResultWriter, Scanner};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const REGION: usize = 128 * BLOCK_BYTES;

/// An index, the numbers of its columns in the table, and its file.
struct Index {
    columns: Vec<u16>,
    file: Vec<u8>,
}

struct Table<'a> {
    cluster: &'a Cluster,
    attributes: Vec<Attribute>,
    columns: Vec<(String, u32)>,
}

impl<'a> Table<'a> {
    fn open(cluster: &'a Cluster) -> Self {
        let listing = cluster.sql(
            "select attname, atttypid, atttypmod, attlen, attalign, attbyval from pg_attribute
             where attrelid = 't'::regclass and attnum > 0 order by attnum",
        );
        let (mut attributes, mut columns) = (Vec::new(), Vec::new());
        for line in listing.lines() {
            let fields: Vec<&str> = line.split('|').collect();
            columns.push((fields[0].to_owned(), fields[1].parse().unwrap()));
            attributes.push(Attribute {
                type_oid: fields[1].parse().unwrap(),
                typmod: fields[2].parse().unwrap(),
                width: Width::from_typlen(fields[3].parse().unwrap()).unwrap(),
                align: Align::from_typalign(fields[4].as_bytes()[0]).unwrap(),
                by_value: fields[5] == "t",
                missing: Missing::Null,
            });
        }
        Self { cluster, attributes, columns }
    }

    fn index(&self, name: &str) -> Index {
        let columns = self.cluster.sql(&format!("select indkey from pg_index where indexrelid = '{name}'::regclass"));
        let columns = columns.split_whitespace().map(|number| number.parse().unwrap()).collect();
        Index { columns, file: self.cluster.heap(name) }
    }

    fn lsn(&self) -> u64 {
        let lsn = self.cluster.sql("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn");
        lsn.trim().parse().unwrap()
    }

    fn request(&self, quals: Vec<Expr>, mut projection: Vec<u16>, index: Option<IndexScan>) -> ScanRequest {
        projection.sort_unstable();
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
            mode: ScanMode::Columns,
            snapshot: Snapshot { xmin: 1 << 20, xmax: 1 << 20, taken_during_recovery: false, next_full_xid: 1 << 20 },
            threads: 1,
            aggregation: None,
            lookups: Vec::new(),
            top_n: None,
            index,
        };
        let mut wire = Vec::new();
        request.encode(&mut wire);
        assert_eq!(ScanRequest::decode(&wire).unwrap(), request);
        request
    }

    fn scan(&self, request: &ScanRequest, file: &[u8]) -> Answer {
        let widths: Vec<Option<usize>> = request
            .projection
            .iter()
            .map(|number| match self.attributes[*number as usize - 1].width {
                Width::Fixed(bytes) => Some(bytes as usize),
                _ => None,
            })
            .collect();
        let mut scanner = Scanner::new(Arc::new(Plan::compile(request).unwrap()));
        scanner.verify_checksums(true);
        let mut out = ResultWriter::new();
        for (region, pages) in file.chunks(REGION).enumerate() {
            let progress = scanner.scan(region as u32 * 128, pages, &NoXids, &mut out, true);
            assert!(matches!(progress, Progress::Done { summary: None, .. }) || request.index.is_none());
        }
        out.flush();
        let mut answer = read(out.frames(), &widths);
        answer.rows.sort();
        answer.tids.sort();
        answer
    }

    /// None: PostgreSQL raises an error.
    fn tids(&self, query: &str) -> Option<Vec<HeapTid>> {
        let tid = |line: &str| {
            let (block, line_pointer) = line.trim_matches(['(', ')']).split_once(',').unwrap();
            HeapTid { block: block.parse().unwrap(), line_pointer: line_pointer.parse().unwrap() }
        };
        let (listing, errors) = self.cluster.script(query);
        let mut tids: Vec<HeapTid> = listing.lines().map(tid).collect();
        tids.sort();
        (!errors.contains("ERROR")).then_some(tids)
    }
}

/// The heap rows of each leaf page's entries, as a scan without all-visible bits returns them.
fn tids_by_page(table: &Table<'_>, index: &Index) -> BTreeMap<u32, (u32, Vec<HeapTid>)> {
    let pages = index.file.chunks(BLOCK_BYTES).enumerate();
    let scan = IndexScan { lsn: u64::MAX, columns: index.columns.clone(), all_visible: Vec::new() };
    let mut request = table.request(vec![], vec![], Some(scan));
    // Each page is scanned on its own, under another block number.
    request.relation.checksums = false;
    let answers = pages.map(|(block, page)| (block as u32, table.scan(&request, page)));
    answers
        .filter(|(_, answer)| !answer.links.is_empty())
        .map(|(block, answer)| (block, (answer.links[0].1, answer.tids)))
        .collect()
}

#[test]
fn index_entries_are_the_rows_of_the_table_and_damaged_pages_never_panic() {
    let Some(cluster) = Cluster::start("index") else { return eprintln!("skipped: PostgreSQL is not installed") };
    let mut random = Random::new(setting("CELLAR_SEED", 7));
    cluster.sql(
        "create table t (pad text, id int4, k text, n numeric, v int8, f float8);
         create function fill(first int, last int) returns void language sql as $$
             insert into t select repeat('x', 80), g,
                 case when g % 13 = 0 then null when g % 7 = 0 then repeat('long ', g % 90) else 'key ' || g % 97 end,
                 case when g % 11 = 0 then null else (g % 1000) / 8.0 end, case when g % 5 > 0 then g % 50 end, g / 3.0
             from generate_series(first, last) g $$;
         select fill(1, 20000);
         create index all_columns on t (k, n) include (id, v, f);
         create index posting on t (v);
         create index reversed on t (f, v, id);
         vacuum (freeze) t",
    );
    let table = Table::open(&cluster);
    let heap = cluster.heap("t");
    let blocks = heap.len() / BLOCK_BYTES;
    let mut compared = 0;
    for name in ["all_columns", "posting", "reversed"] {
        let index = table.index(name);
        let leaf_pages = tids_by_page(&table, &index).len();
        let known = |number: usize| index.columns.contains(&(number as u16 + 1));
        let columns = table.columns.iter().enumerate().map(|(number, column)| known(number).then(|| column.clone()));
        let generator = Generator::new(&cluster, columns.collect());
        scan_damaged_pages(&table, &index, &mut random);
        for case in 0..setting("CELLAR_CASES", 8) {
            let (text, qual) = match case {
                0 => ("true".to_owned(), None),
                _ => {
                    let (text, qual) = generator.condition(&mut random, 2);
                    (text, Some(qual))
                }
            };
            let quals: Vec<Expr> = qual.into_iter().collect();
            let mut bits = vec![0u8; blocks.div_ceil(8)];
            (0..blocks)
                .filter(|_| case == 0 || !random.one_in(4))
                .for_each(|block| bits[block / 8] |= 1 << (block % 8));
            let scan = IndexScan { lsn: u64::MAX, columns: index.columns.clone(), all_visible: bits };
            let unseen: Vec<String> = (0..blocks as u32)
                .filter(|block| !scan.is_all_visible(*block))
                .map(|block| block.to_string())
                .collect();
            let unseen = format!("(ctid::text::point)[0]::int = any ('{{{}}}')", unseen.join(","));

            let request = table.request(quals.clone(), index.columns.clone(), Some(scan));
            if Plan::compile(&request).is_err() {
                continue;
            }
            let answer = table.scan(&request, &index.file);
            let whole = table.scan(&ScanRequest { index: None, ..request.clone() }, &heap);
            // A condition that raises an error for some row passes its page through.
            if answer.links.len() < leaf_pages || !whole.passthru.is_empty() {
                continue;
            }
            let Some(tids) = table.tids(&format!("select ctid from t where ({text}) and {unseen}")) else { continue };
            assert_eq!(answer.tids, tids, "{name}: {text}");
            compared += 1;
            assert_eq!(answer.rows.len() + answer.tids.len(), whole.rows.len(), "{name}: {text}");
            let mut rest: BTreeMap<&Vec<Datum>, i64> = BTreeMap::new();
            whole.rows.iter().for_each(|row| *rest.entry(row).or_default() += 1);
            for row in &answer.rows {
                *rest.entry(row).or_default() -= 1;
            }
            let surplus = rest.iter().find(|(_, count)| **count < 0);
            assert_eq!(surplus, None, "{name}: a row of the index is not in the table: {text}");
        }
    }
    assert!(compared > 9, "only {compared} conditions were compared");
}

#[test]
fn pages_that_changed_are_not_counted_and_the_others_keep_their_entries_and_links() {
    let Some(cluster) = Cluster::start("leaves") else { return eprintln!("skipped: PostgreSQL is not installed") };
    cluster.sql(
        "create table t (id int4, pad text);
         insert into t select g * 2, repeat('x', 200) from generate_series(1, 20000) g;
         create index i on t (id); vacuum (freeze) t",
    );
    let table = Table::open(&cluster);
    let before = table.index("i");
    let lsn = table.lsn();
    // Splits of some pages, entries that are removed from others, and pages that become empty and are deleted.
    cluster.sql(
        "insert into t select g * 2 + 1, 'y' from generate_series(9000, 9600) g;
         delete from t where id between 20000 and 24000; vacuum t",
    );
    let after = table.index("i");
    assert!(after.file.len() > before.file.len());
    let scan = IndexScan { lsn, columns: after.columns.clone(), all_visible: vec![0xff; 1 << 12] };
    let answer = table.scan(&table.request(vec![], vec![1], Some(scan)), &after.file);

    let pages = tids_by_page(&table, &before);
    let counted: BTreeMap<u32, u32> = answer.links.iter().copied().collect();
    assert!(counted.len() > pages.len() / 2 && counted.len() < pages.len() - 3, "{} of {}", counted.len(), pages.len());
    let mut rows = 0;
    for (block, link) in &counted {
        let (link_before, tids) = &pages[block];
        assert_eq!(link, link_before);
        rows += tids.len();
    }
    assert_eq!(answer.rows.len(), rows);
    assert!(counted.values().all(|link| *link != LeafLinks::NOT_COUNTED));
    // Every page that was not counted has changed.
    let same: BTreeSet<u32> = pages.keys().copied().filter(|block| !counted.contains_key(block)).collect();
    for block in same {
        let at = block as usize * BLOCK_BYTES;
        assert_ne!(before.file[at..at + BLOCK_BYTES], after.file[at..at + BLOCK_BYTES]);
    }
}

/// Scans pages of an index with random damage.
fn scan_damaged_pages(table: &Table<'_>, index: &Index, random: &mut Random) {
    let scan = IndexScan { lsn: u64::MAX, columns: index.columns.clone(), all_visible: vec![0xff; 8] };
    let mut request = table.request(vec![], index.columns.clone(), Some(scan));
    request.relation.checksums = false;
    let pages: Vec<&[u8]> = index.file.chunks(BLOCK_BYTES).collect();
    for _ in 0..setting("CELLAR_CASES", 300) {
        let mut page = random.pick::<&[u8]>(&pages).to_vec();
        for _ in 0..1 + random.below(4) {
            // Headers, line pointers, the special area, and anywhere.
            let at = match random.below(4) {
                0 => random.below(24),
                1 => 24 + random.below(1600),
                2 => BLOCK_BYTES - 16 + random.below(16),
                _ => random.below(BLOCK_BYTES),
            };
            page[at] ^= 1 << random.below(8);
        }
        table.scan(&request, &page);
    }
}
