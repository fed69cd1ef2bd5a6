//! Checks of the database after recovery. Each check prints a line `ok - …` or `not ok - …`.

use super::{BALANCES, Check, TABLES, WRITERS, commits, ddl, ddl_record, writer_record};
use crate::connect::{Offload, configure, connect, set_offload, smart_scans, text_rows};
use anyhow::Result;
use clap::Args;
use postgres::Client;
use std::path::PathBuf;

#[derive(Args)]
pub struct Options {
    /// Directory of the records of acknowledged commits.
    #[arg(long)]
    records: PathBuf,
    /// Text that the description of each check starts with.
    #[arg(long)]
    label: String,
}

/// Returns whether all checks passed.
pub fn run(dsn: &str, options: &Options) -> Result<bool> {
    let mut client = connect(dsn)?;
    configure(&mut client, &[], true)?;
    let records: Vec<PathBuf> = (1..=WRITERS).map(|writer| writer_record(&options.records, writer)).collect();
    let written: Vec<PathBuf> = records.into_iter().filter(|record| record.exists()).collect();
    let checks = [
        commits::verify(&mut client, &written)?,
        balances(&mut client)?,
        ddl::verify(&mut client, &ddl_record(&options.records))?,
        same_rows(&mut client)?,
    ];
    for Check { passed, text } in &checks {
        println!("{} - {}: {text}", if *passed { "ok" } else { "not ok" }, options.label);
    }
    Ok(checks.iter().all(|check| check.passed))
}

/// Checks that pgbench's four balances are equal, with Smart Scan on and off.
fn balances(client: &mut Client) -> Result<Check> {
    let mut sums = Vec::new();
    for offload in [Offload::On, Offload::Off] {
        set_offload(client, offload)?;
        sums.extend(text_rows(client, BALANCES)?.into_iter().flatten());
    }
    let passed = sums.iter().all(|sum| *sum == sums[0]);
    let text = match passed {
        true => "pgbench's balances agree".to_owned(),
        false => format!("pgbench's balances differ, first with Smart Scan on: {sums:?}"),
    };
    Ok(Check { passed, text })
}

/// Checks that every table has the same rows with Smart Scan on and off, and that Smart Scans were planned.
fn same_rows(client: &mut Client) -> Result<Check> {
    let mut tables: Vec<String> = TABLES.map(str::to_owned).to_vec();
    tables.extend(ddl::existing_tables(client)?);
    let (mut scans, mut different) = (0, Vec::new());
    for table in &tables {
        // The whole row is not computed in the cell: the cell returns every column of every row.
        let query = format!("SELECT count(*), sum(hashtextextended(t::text, 0)) FROM {table} t");
        set_offload(client, Offload::On)?;
        scans += smart_scans(client, &query)?;
        let on = text_rows(client, &query)?;
        set_offload(client, Offload::Off)?;
        if on != text_rows(client, &query)? {
            different.push(table.as_str());
        }
    }
    let passed = different.is_empty() && scans > 0;
    let text = format!("{scans} Smart Scans of {} tables return PostgreSQL's rows", tables.len());
    Ok(match different.is_empty() {
        true => Check { passed, text },
        false => Check { passed, text: format!("{text}, except of {}", different.join(", ")) },
    })
}
