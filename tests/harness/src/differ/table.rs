//! Random tables: columns, rows, and the traces that all kinds of transactions leave on pages.
//!
//! Several sessions modify a table. One creates it, two keep transactions open while the queries run (rows in progress,
//! locks, multixacts), and the session that runs the queries makes uncommitted changes. Each session only takes rows that
//! no other session has locked, so that none waits.

use super::rng::Rng;
use super::types::{DECLARED, Type, quoted};
use anyhow::{Context, Result};
use postgres::Client;
use postgres::error::SqlState;

#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    pub of: Type,
    pub declared: &'static str,
    /// Values stored in the column, used as literals that match rows.
    pub samples: Vec<String>,
    null_percent: usize,
}

#[derive(Clone, Debug)]
pub struct Table {
    pub name: String,
    pub columns: Vec<Column>,
    next_column: usize,
    next_id: i64,
}

const ROWS_PER_INSERT: usize = 200;

impl Column {
    fn random(number: usize, rng: &mut Rng) -> Self {
        let (of, declared) = *rng.pick(&DECLARED);
        let null_percent = *rng.pick(&[0, 0, 5, 30, 90]);
        Self { name: format!("c{number}"), of, declared, samples: Vec::new(), null_percent }
    }

    /// Returns a literal to store, NULL or a value, and adds some values to the samples.
    fn stored(&mut self, rng: &mut Rng) -> String {
        if rng.chance(self.null_percent) {
            return "NULL".to_owned();
        }
        // Repeat values, so that an equality matches several rows.
        if !self.samples.is_empty() && rng.chance(40) {
            return quoted(&rng.pick(&self.samples).clone());
        }
        let value = self.of.value(self.declared, rng);
        if value.len() < 200 && (self.samples.len() < 40 || rng.chance(2)) {
            self.samples.push(value.clone());
        }
        quoted(&value)
    }
}

impl Table {
    /// Creates and fills the table, and modifies it by committed, aborted and partly rolled back transactions.
    pub fn create(name: String, client: &mut Client, rng: &mut Rng) -> Result<Self> {
        let mut table = Self { name, columns: Vec::new(), next_column: 0, next_id: 0 };
        for _ in 0..=rng.below(9) {
            table.columns.push(Column::random(table.next_column, rng));
            table.next_column += 1;
        }
        let mut declarations: Vec<String> =
            table.columns.iter().map(|column| format!("{} {}", column.name, column.declared)).collect();
        // The key is at a random position, so that the offsets of other columns may be fixed or not.
        declarations.insert(rng.below(declarations.len() + 1), "id int8".to_owned());
        let statement = format!(
            "CREATE TABLE {} ({}) WITH (fillfactor = {}, autovacuum_enabled = off)",
            table.name,
            declarations.join(", "),
            rng.pick(&[100, 100, 70, 30])
        );
        client.batch_execute(&statement).with_context(|| statement.clone())?;
        client.batch_execute(&format!("SELECT setseed({})", rng.below(1000) as f64 / 1000.0))?;
        for column in &table.columns {
            if (column.declared.starts_with("text") || column.of == Type::Jsonb) && rng.chance(40) {
                let storage = rng.pick(&["EXTERNAL", "MAIN", "PLAIN", "EXTENDED"]);
                // With storage PLAIN, a row must fit into a page.
                if *storage != "PLAIN" {
                    client.batch_execute(&format!(
                        "ALTER TABLE {} ALTER {} SET STORAGE {storage}",
                        table.name, column.name
                    ))?;
                }
            }
        }
        let rows = *rng.pick(&[0, 1, 7, 60, 300, 900, 2500]);
        table.insert(client, rows, rng)?;
        if rng.chance(30) {
            client.batch_execute(&format!("CREATE INDEX ON {} (id)", table.name))?;
        }
        for _ in 0..rng.below(7) {
            table.change(client, rng)?;
        }
        if rng.chance(50) {
            client.batch_execute(&format!("ANALYZE {}", table.name))?;
        }
        Ok(table)
    }

    fn insert(&mut self, client: &mut Client, rows: usize, rng: &mut Rng) -> Result<()> {
        let names: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
        let head = format!(
            "INSERT INTO {} (id{}) VALUES ",
            self.name,
            names.iter().map(|n| format!(", {n}")).collect::<String>()
        );
        let mut left = rows;
        while left > 0 {
            let batch = left.min(ROWS_PER_INSERT);
            left -= batch;
            let rows: Vec<String> = (0..batch)
                .map(|_| {
                    self.next_id += 1;
                    let values: String = self.columns.iter_mut().map(|c| format!(", {}", c.stored(rng))).collect();
                    format!("({}{values})", self.next_id)
                })
                .collect();
            client.batch_execute(&format!("{head}{}", rows.join(", "))).with_context(|| format!("{head}…"))?;
        }
        Ok(())
    }

    /// Returns a random selection of rows that no other session has locked.
    fn some_rows(&self, percent: usize, lock: &str) -> String {
        format!(
            "ctid = ANY (ARRAY(SELECT ctid FROM {} WHERE random() < {} FOR {lock} SKIP LOCKED))",
            self.name,
            percent as f64 / 100.0
        )
    }

    fn update(&mut self, client: &mut Client, percent: usize, rng: &mut Rng) -> Result<()> {
        let rows = self.some_rows(percent, "NO KEY UPDATE");
        let set = if self.columns.is_empty() {
            "id = id".to_owned()
        } else {
            let at = rng.below(self.columns.len());
            let value = self.columns[at].stored(rng);
            format!("{} = {value}", self.columns[at].name)
        };
        Ok(client.batch_execute(&format!("UPDATE {} SET {set} WHERE {rows}", self.name))?)
    }

    fn delete(&self, client: &mut Client, percent: usize) -> Result<()> {
        Ok(client.batch_execute(&format!("DELETE FROM {} WHERE {}", self.name, self.some_rows(percent, "UPDATE")))?)
    }

    fn lock(&self, client: &mut Client, percent: usize, rng: &mut Rng) -> Result<()> {
        let lock = rng.pick(&["UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"]);
        let sql = format!(
            "SELECT count(*) FROM (SELECT 1 FROM {} WHERE random() < {} FOR {lock} SKIP LOCKED) s",
            self.name,
            percent as f64 / 100.0
        );
        // Locking an old row version also locks the newer versions, and waits there despite SKIP LOCKED.
        client.batch_execute("SAVEPOINT lock_")?;
        match client.simple_query(&sql) {
            Ok(_) => Ok(client.batch_execute("RELEASE SAVEPOINT lock_")?),
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                Ok(client.batch_execute("ROLLBACK TO SAVEPOINT lock_")?)
            }
            Err(error) => Err(error).context(sql),
        }
    }

    /// Executes one step of a transaction.
    fn work(&mut self, client: &mut Client, rng: &mut Rng) -> Result<()> {
        let percent = *rng.pick(&[1, 5, 30]);
        match rng.below(4) {
            0 => {
                let rows = 1 + rng.below(40);
                self.insert(client, rows, rng)
            }
            1 => self.update(client, percent, rng),
            2 => self.delete(client, percent),
            _ => self.lock(client, percent, rng),
        }
    }

    /// Compresses the table at a random level, or decompresses the table.
    pub fn compress(&self, client: &mut Client, rng: &mut Rng) -> Result<()> {
        const LEVELS: [&str; 6] = ["query low", "query low", "query high", "archive low", "archive high", "none"];
        let level = LEVELS[rng.below(LEVELS.len())];
        client.batch_execute(&format!("SELECT cellar.compress('{}', '{level}')", self.name))?;
        Ok(())
    }

    /// Returns the number of compression units and of superseded blocks.
    pub fn units(&self, client: &mut Client) -> Result<(i64, i64)> {
        let sql = format!(
            "SELECT coalesce(sum(units), 0)::int8, coalesce(sum(superseded_blocks), 0)::int8
             FROM cellar.get_compression('{}') WHERE level <> 'none'",
            self.name
        );
        let row = client.query_one(&sql, &[])?;
        Ok((row.get(0), row.get(1)))
    }

    /// Executes steps with savepoints in the current transaction, and rolls some of them back.
    pub fn work_in_transaction(&mut self, client: &mut Client, rng: &mut Rng) -> Result<()> {
        for number in 0..1 + rng.below(4) {
            if rng.chance(50) {
                client.batch_execute(&format!("SAVEPOINT w{number}"))?;
                self.work(client, rng)?;
                match rng.below(3) {
                    0 => client.batch_execute(&format!("ROLLBACK TO SAVEPOINT w{number}"))?,
                    1 => client.batch_execute(&format!("RELEASE SAVEPOINT w{number}"))?,
                    _ => {}
                }
            } else {
                self.work(client, rng)?;
            }
        }
        Ok(())
    }

    /// Makes one committed or aborted change of rows, pages or columns.
    fn change(&mut self, client: &mut Client, rng: &mut Rng) -> Result<()> {
        let name = self.name.clone();
        match rng.below(12) {
            0..=3 => {
                client.batch_execute("BEGIN")?;
                self.work(client, rng)?;
                client.batch_execute("COMMIT")?;
            }
            4 | 5 => {
                client.batch_execute("BEGIN")?;
                self.work_in_transaction(client, rng)?;
                client.batch_execute(if rng.chance(50) { "COMMIT" } else { "ROLLBACK" })?;
            }
            6 => client.batch_execute(&format!("VACUUM {name}"))?,
            7 => client.batch_execute(&format!("VACUUM (FREEZE) {name}"))?,
            8 | 9 => {
                let mut column = Column::random(self.next_column, rng);
                self.next_column += 1;
                let value = column.of.value(column.declared, rng);
                let default = match rng.below(3) {
                    0 => String::new(),
                    1 if value.len() < 500 => format!(" DEFAULT {}", quoted(&value)),
                    _ => format!(" DEFAULT {} NOT NULL", quoted(&value)),
                };
                client
                    .batch_execute(&format!("ALTER TABLE {name} ADD {} {}{default}", column.name, column.declared))?;
                if default.ends_with("NOT NULL") {
                    column.null_percent = 0;
                }
                if value.len() < 200 {
                    column.samples.push(value);
                }
                self.columns.push(column);
            }
            10 if self.columns.len() > 1 => {
                let column = self.columns.remove(rng.below(self.columns.len()));
                client.batch_execute(&format!("ALTER TABLE {name} DROP {}", column.name))?;
            }
            _ => {
                let rows = rng.below(300);
                self.insert(client, rows, rng)?;
            }
        }
        Ok(())
    }
}
