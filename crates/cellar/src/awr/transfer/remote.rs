//! Stores AWR snapshots of one server, the source, in the repository of another server. The source is a standby, which cannot write,
//! or one of several servers with a central repository.
//!
//! The statistics, session samples and texts are copied to temporary tables of the repository's server. From there, the functions that
//! store the server's own statistics store them.

use super::super::repository::{Repository, failure};
use super::super::source::Failure;
use super::export::copy_failure;
use postgres::Client;
use std::io;
use std::time::Instant;

/// Takes an AWR snapshot of `source` and returns its number. Without a name, the instance is named by cluster_name or, if that
/// is empty, by the host.
pub fn store_snapshot_of(
    source: &mut Repository,
    repository: &mut Repository,
    name: Option<&str>,
) -> Result<i64, Failure> {
    let began = Instant::now();
    let source = source.client();
    let sql = "SELECT f::text, coalesce(nullif(f ->> 'cluster_name', ''), f ->> 'host'), f ->> 'incarnation', \
               (SELECT to_jsonb(s)::text FROM awr.get_sampler_state() s) FROM awr.get_facts() f";
    let facts = source.query_one(sql, &[]).map_err(|error| failure(&error))?;
    let default: Option<String> = facts.get(1);
    let name = name.map(str::to_owned).or(default).ok_or_else(|| {
        Failure::usage("the server has neither cluster_name nor a host name").hint("Name the instance with --name.")
    })?;
    let (facts, incarnation, sampler): (String, String, String) = (facts.get(0), facts.get(2), facts.get(3));

    let mut transaction = repository.client().transaction().map_err(|error| failure(&error))?;
    transaction
        .batch_execute(
            "CREATE TEMP TABLE awr_source_value OF awr.collected ON COMMIT DROP;
             CREATE TEMP TABLE awr_source_query (query_id bigint, query text) ON COMMIT DROP;
             CREATE TEMP TABLE awr_source_sample ON COMMIT DROP AS SELECT * FROM awr.get_samples(0) WITH NO DATA;
             CREATE TEMP TABLE awr_source_plan ON COMMIT DROP AS SELECT * FROM awr.get_plans() WITH NO DATA",
        )
        .map_err(|error| failure(&error))?;
    let sql = "SELECT awr.last_sequence(i.instance_id, 'samples', $2), awr.last_sequence(i.instance_id, 'texts', $2), \
               awr.known_query_texts(i.instance_id)::text \
               FROM awr.instance i WHERE NOT i.is_local AND i.name = $1";
    let known = transaction.query_opt(sql, &[&name, &incarnation]).map_err(|error| failure(&error))?;
    let (samples, plans, texts): (i64, i64, String) =
        known.map_or((0, 0, "{}".to_owned()), |row| (row.get(0), row.get(1), row.get(2)));
    for (query, table) in [
        (format!("SELECT * FROM awr.get_samples({samples})"), "awr_source_sample"),
        (format!("SELECT * FROM awr.get_plans({plans})"), "awr_source_plan"),
        ("SELECT kind, database, data FROM awr.collect()".to_owned(), "awr_source_value"),
        (format!("SELECT * FROM awr.get_query_texts('{texts}')"), "awr_source_query"),
    ] {
        copy(source, &query, &mut transaction, table)?;
    }

    // The order of the locks is that of awr.create_snapshot().
    let lock =
        "LOCK TABLE awr.word IN SHARE UPDATE EXCLUSIVE MODE; LOCK TABLE awr.plan_text IN SHARE UPDATE EXCLUSIVE MODE";
    transaction.batch_execute(lock).map_err(|error| failure(&error))?;
    let store = "SELECT awr.store_snapshot($1, false, $2::text::jsonb, \
                 (SELECT array_agg(ROW(v.kind, v.database, v.data)::awr.collected) FROM pg_temp.awr_source_value v), 'user')";
    let number: i64 = transaction.query_one(store, &[&name, &facts]).map_err(|error| failure(&error))?.get(0);
    let texts = "SELECT awr.store_sample_rows(i.instance_id, 'pg_temp.awr_source_sample', $2, $3::text::jsonb), \
                 awr.store_plan_rows(i.instance_id, 'pg_temp.awr_source_plan', $2)::text, \
                 awr.store_query_texts(i.instance_id, 'pg_temp.awr_source_query')::text, \
                 awr.assign_samples(i.instance_id, $4)::text \
                 FROM awr.instance i WHERE NOT i.is_local AND i.name = $1";
    transaction.query_one(texts, &[&name, &incarnation, &sampler, &number]).map_err(|error| failure(&error))?;
    transaction.execute("SELECT awr.sum_samples()", &[]).map_err(|error| failure(&error))?;
    let duration = i64::try_from(began.elapsed().as_micros()).unwrap_or(i64::MAX);
    let sql = "UPDATE awr.snapshot s SET duration_us = $3 FROM awr.instance i \
               WHERE NOT i.is_local AND i.name = $1 AND s.instance_id = i.instance_id AND s.snap_id = $2";
    transaction.execute(sql, &[&name, &number, &duration]).map_err(|error| failure(&error))?;
    transaction.commit().map_err(|error| failure(&error))?;
    Ok(number)
}

/// Copies the rows of a query on one server to a temporary table on another.
fn copy(source: &mut Client, query: &str, target: &mut postgres::Transaction<'_>, table: &str) -> Result<(), Failure> {
    let mut rows = source.copy_out(&format!("COPY ({query}) TO STDOUT")).map_err(|error| failure(&error))?;
    let mut out = target.copy_in(&format!("COPY pg_temp.{table} FROM STDIN")).map_err(|error| failure(&error))?;
    io::copy(&mut rows, &mut out).map_err(|error| copy_failure(&error))?;
    out.finish().map_err(|error| failure(&error))?;
    Ok(())
}
