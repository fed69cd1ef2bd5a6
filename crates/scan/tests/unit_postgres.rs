//! Compression units of tables that PostgreSQL wrote: updated, pruned, vacuumed, altered and TOASTed. Skipped with a message
//! where PostgreSQL is not installed.

use crate::support::cluster::Cluster;
use cellar_format::postgres::{Align, Width};
use cellar_format::units::BLOCK_BYTES;
use cellar_scan::unit::{Attribute, Level, PageKind, Rebuilder, Shape, Unit, encode};

const TABLES: &str = r"
    create table clean as select g as id, g % 7 as few, now() as at, 'row ' || md5((g % 100)::text) as note
        from generate_series(1, 20000) g;
    create table churned (id int primary key, balance numeric(12,2), state text, changed timestamp, filler char(40));
    insert into churned select g, g * 1.25, 'new', '2024-01-01', 'x' from generate_series(1, 20000) g;
    update churned set balance = balance + 1, state = 'seen' where id % 3 = 0;
    delete from churned where id % 11 = 0;
    update churned set changed = '2024-02-02' where id % 5 = 0;
    vacuum churned;
    insert into churned select g, g, 'late', null, 'y' from generate_series(30000, 33000) g;
    update churned set balance = -balance where id % 13 = 0;
    begin; update churned set state = 'never' where id % 17 = 0; rollback;
    begin; select count(*) from (select * from churned where id % 19 = 0 for update) locked; commit;
    select count(*) from churned;
    create table nasty (a int, gone text, b numeric, c text, d float8, e uuid, f interval, g name, h int[], i bytea);
    alter table nasty alter c set storage main;
    insert into nasty select case when g % 3 = 0 then null else g end, 'dropped', (array['NaN', 'Infinity', '-0.5',
        '1e100', '123.4500', '0', '1e-30'])[1 + g % 7]::numeric, repeat(md5(g::text), g % 90),
        (array['NaN', '-Infinity', '-0', '1.5'])[1 + g % 4]::float8, gen_random_uuid(), g * interval '1 hour',
        'name' || g, array[g, null, 3], decode(repeat('00ff', g % 40), 'hex') from generate_series(1, 3000) g;
    insert into nasty select g, repeat('z', 100000), 1, (select string_agg(md5(x::text), '') from
        generate_series(1, 200) x) from generate_series(1, 50) g;
    alter table nasty drop column gone;
    alter table nasty add column added int default 42;
    alter table nasty add column later text;
    insert into nasty (a, later) select g, 'later ' || g from generate_series(1, 500) g;
    update nasty set a = a where a % 7 = 0;
    create table wide_empty (a int, b text);
    insert into wide_empty default values;
";

fn shape(cluster: &Cluster, table: &str) -> Shape {
    let listing = cluster.sql(&format!(
        "select atttypid, attlen, attalign, attbyval, attisdropped from pg_attribute
         where attrelid = '{table}'::regclass and attnum > 0 order by attnum"
    ));
    let attributes = listing.lines().map(|line| {
        let fields: Vec<&str> = line.split('|').collect();
        Attribute {
            type_oid: fields[0].parse().unwrap(),
            width: Width::from_typlen(fields[1].parse().unwrap()).unwrap(),
            align: Align::from_typalign(fields[2].as_bytes()[0]).unwrap(),
            by_value: fields[3] == "t",
            dropped: fields[4] == "t",
        }
    });
    Shape { attributes: attributes.collect() }
}

#[test]
fn tables_that_postgres_wrote_are_rebuilt_byte_for_byte() {
    let Some(cluster) = Cluster::start("unit") else {
        eprintln!("skipped: PostgreSQL is not installed");
        return;
    };
    cluster.sql(TABLES);
    for (table, ratio_min) in [("clean", 5.0), ("churned", 3.0), ("nasty", 1.5), ("wide_empty", 1.0)] {
        let (shape, heap) = (shape(&cluster, table), cluster.heap(table));
        for level in Level::ALL {
            let mut total = 0;
            for pages in heap.chunks(100 * BLOCK_BYTES) {
                let bytes = encode(pages, &shape, level).unwrap();
                let unit = Unit::open(&bytes).unwrap();
                assert!(unit.pages().iter().all(|page| page.kind != PageKind::Raw), "{table}");
                let mut rebuilder = Rebuilder::new();
                let mut page = [0; BLOCK_BYTES];
                for (number, expected) in pages.chunks_exact(BLOCK_BYTES).enumerate() {
                    rebuilder.page(&unit, &bytes, number, &mut page).unwrap();
                    assert!(page == expected, "{table}, {level:?}, page {number}");
                }
                total += bytes.len();
            }
            let ratio = heap.len() as f64 / total as f64;
            println!("{table}, {}: {} pages, {ratio:.2}", level.name(), heap.len() / BLOCK_BYTES);
            assert!(ratio > ratio_min, "{table}, {level:?}: {ratio}");
        }
    }
}
