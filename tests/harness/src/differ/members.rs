//! Queries that aggregate the rows of append relations: of a partitioned copy of the table, and of UNION ALL.

use super::query::Queries;
use super::rng::Rng;
use super::table::{Column, Table};
use anyhow::{Context, Result};
use postgres::Client;

const LEVELS: [&str; 3] = ["query low", "archive low", "none"];

/// Returns the name of the partitioned copy of a table.
fn partitioned(table: &Table) -> String {
    format!("{}_parts", table.name)
}

/// Creates a partitioned table with the rows of a table. Each partition has the columns in another order, and one is partitioned again.
pub fn create_partitioned(table: &Table, client: &mut Client, rng: &mut Rng, compress: bool) -> Result<()> {
    let name = partitioned(table);
    let mut declarations: Vec<String> =
        table.columns.iter().map(|column| format!("{} {}", column.name, column.declared)).collect();
    declarations.push("id int8".to_owned());
    let modulus = 1 + rng.below(4);
    let mut sql = format!("CREATE TABLE {name} ({}) PARTITION BY HASH (id);", declarations.join(", "));
    for number in 0..modulus {
        let partition = format!("{name}_{number}");
        let bound = format!("FOR VALUES WITH (MODULUS {modulus}, REMAINDER {number})");
        if number == 0 && rng.chance(40) {
            sql += &format!("CREATE TABLE {partition} PARTITION OF {name} {bound} PARTITION BY RANGE (id);");
            sql +=
                &format!("CREATE TABLE {partition}_low PARTITION OF {partition} FOR VALUES FROM (MINVALUE) TO (400);");
            sql += &format!("CREATE TABLE {partition}_other PARTITION OF {partition} DEFAULT;");
            continue;
        }
        let mut columns = declarations.clone();
        columns.push("gone int4".to_owned());
        for at in (1..columns.len()).rev() {
            columns.swap(at, rng.below(at + 1));
        }
        sql += &format!("CREATE TABLE {partition} ({}); ALTER TABLE {partition} DROP gone;", columns.join(", "));
        sql += &format!("ALTER TABLE {name} ATTACH PARTITION {partition} {bound};");
    }
    let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).chain(["id"]).collect();
    let names = names.join(", ");
    sql += &format!("INSERT INTO {name} ({names}) SELECT {names} FROM {};", table.name);
    if rng.chance(50) {
        sql += &format!("ANALYZE {name};");
    }
    client.batch_execute(&sql).with_context(|| sql.clone())?;
    if compress {
        let partition = format!("{name}_{}", rng.below(modulus));
        client.batch_execute(&format!("SELECT cellar.compress('{partition}', '{}')", rng.pick(&LEVELS)))?;
    }
    Ok(())
}

pub fn drop_partitioned(table: &Table, client: &mut Client) -> Result<()> {
    Ok(client.batch_execute(&format!("DROP TABLE {}", partitioned(table)))?)
}

impl Queries<'_> {
    /// Returns a query that aggregates the rows of an append relation.
    pub fn members(&mut self, condition: &str) -> String {
        let table = self.table.name.clone();
        let sql = if self.rng.chance(25) { self.top_groups(condition) } else { self.grouping(condition) };
        let relation = if self.rng.chance(35) { partitioned(self.table) } else { self.union_all() };
        sql.replacen(&format!("FROM {table} WHERE"), &format!("FROM {relation} WHERE"), 1)
    }

    /// Returns a subquery of two to four members that has the columns of the table.
    fn union_all(&mut self) -> String {
        let members: Vec<String> = (0..2 + self.rng.below(3)).map(|_| self.member()).collect();
        format!("({}) u", members.join(" UNION ALL "))
    }

    fn member(&mut self) -> String {
        let id = *self.rng.pick(&["id", "id", "id", "id + 7", "7::int8", "NULL::int8"]);
        let mut items = vec![format!("{id} AS id")];
        for column in self.table.columns.clone() {
            items.push(format!("{} AS {}", self.column_of_member(&column), column.name));
        }
        let from = if self.rng.chance(30) { partitioned(self.table) } else { self.table.name.clone() };
        let wanted = if self.rng.chance(50) { format!(" WHERE {}", self.condition()) } else { String::new() };
        format!("SELECT {} FROM {from}{wanted}", items.join(", "))
    }

    /// Returns an expression of the column's type, often the column.
    fn column_of_member(&mut self, column: &Column) -> String {
        match self.rng.below(10) {
            0 => format!("NULL::{}", column.declared),
            1 => format!("({})::{}", self.literal(column.of), column.declared),
            2 => format!("({})::{}", self.expression(column.of, 1), column.declared),
            3 => {
                let alike: Vec<&Column> =
                    self.table.columns.iter().filter(|other| other.declared == column.declared).collect();
                self.rng.pick(&alike).name.clone()
            }
            _ => column.name.clone(),
        }
    }
}
