//! Connections, and the settings that turn Smart Scan on and off.

use anyhow::{Context, Result};
use postgres::{Client, NoTls, SimpleQueryMessage};

/// The setting cellar.cell_offload_processing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offload {
    Off,
    On,
}

pub fn connect(dsn: &str) -> Result<Client> {
    Client::connect(dsn, NoTls).with_context(|| format!("cannot connect with \"{dsn}\""))
}

/// Applies `settings` ("name=value") to the session, and prefers Smart Scan for every scan, and enables lookup joins, if `forced`.
///
/// On a cluster without the extension, its settings are placeholders without effect.
pub fn configure(client: &mut Client, settings: &[String], forced: bool) -> Result<()> {
    for setting in settings {
        let (name, value) = setting.split_once('=').with_context(|| format!("\"{setting}\" is not name=value"))?;
        client.execute("SELECT set_config($1, $2, false)", &[&name, &value])?;
    }
    if forced {
        client
            .batch_execute("SET cellar.min_scan_size = 0; SET cellar.cost_factor = 0; SET cellar.lookup_joins = on")?;
    }
    Ok(())
}

pub fn set_offload(client: &mut Client, offload: Offload) -> Result<(), postgres::Error> {
    client.batch_execute(match offload {
        Offload::Off => "SET cellar.cell_offload_processing = off",
        Offload::On => "SET cellar.cell_offload_processing = on",
    })
}

/// Returns whether the extension is created in this database.
pub fn has_extension(client: &mut Client) -> Result<bool> {
    Ok(client.query_one("SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'cellar')", &[])?.get(0))
}

/// One row in text form; None is NULL.
pub type Row = Vec<Option<String>>;

pub fn text_rows(client: &mut Client, sql: &str) -> Result<Vec<Row>, postgres::Error> {
    client.simple_query(sql).map(rows_of)
}

/// Returns the rows among the messages that a query returned.
pub fn rows_of(messages: Vec<SimpleQueryMessage>) -> Vec<Row> {
    let row = |message| match message {
        SimpleQueryMessage::Row(row) => Some((0..row.len()).map(|i| row.get(i).map(str::to_owned)).collect()),
        _ => None,
    };
    messages.into_iter().filter_map(row).collect()
}

/// Returns the number of Smart Scans in the plan of a query.
pub fn smart_scans(client: &mut Client, sql: &str) -> Result<usize, postgres::Error> {
    let plan = text_rows(client, &format!("EXPLAIN (COSTS OFF) {sql}"))?;
    Ok(plan.iter().filter(|row| row[0].as_deref().is_some_and(|line| line.contains("(Smart Scan)"))).count())
}
