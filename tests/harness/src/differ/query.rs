//! Random queries over a table: typed expressions, predicates, projections and aggregates.

use super::rng::Rng;
use super::table::{Column, Table};
use super::types::{JSON_KEYS, Type, WORDS, quoted};

pub struct Queries<'a> {
    pub table: &'a Table,
    pub rng: &'a mut Rng,
    pub only_aggregates: bool,
    pub only_first_rows: bool,
    pub only_top_groups: bool,
    pub only_lookups: bool,
    pub only_members: bool,
}

const TYPES: [Type; 16] = [
    Type::Bool,
    Type::Int2,
    Type::Int4,
    Type::Int8,
    Type::Float4,
    Type::Float8,
    Type::Numeric,
    Type::Text,
    Type::Date,
    Type::Time,
    Type::Timestamp,
    Type::Timestamptz,
    Type::Uuid,
    Type::Bytea,
    Type::Enum,
    Type::Jsonb,
];

impl Queries<'_> {
    /// Returns a random query.
    pub fn query(&mut self) -> String {
        let t = &self.table.name;
        let p = self.condition();
        match self.rng.below(if self.only_aggregates { 12 } else { 28 }) {
            _ if self.only_lookups => self.lookups(&p),
            _ if self.only_members => self.members(&p),
            _ if self.only_top_groups => self.top_groups(&p),
            _ if self.only_aggregates && self.rng.chance(25) => self.top_groups(&p),
            _ if self.only_aggregates => self.grouping(&p),
            _ if self.only_first_rows => self.first_rows(&p),
            0..=4 => format!("SELECT {} FROM {t} WHERE {p}", self.projection()),
            5 => format!("SELECT * FROM {t} WHERE {p}"),
            6 | 7 => format!("SELECT count(*) FROM {t} WHERE {p}"),
            8 | 9 => format!("SELECT {} FROM {t} WHERE {p}", self.aggregates()),
            10 => {
                let key = self.group_key();
                format!("SELECT {key}, count(*), min(id), max(id) FROM {t} WHERE {p} GROUP BY {key}")
            }
            11 => format!("SELECT id, {} FROM {t} WHERE {p} ORDER BY id, ctid LIMIT 10", self.any_column()),
            12 => format!(
                "SELECT a.id, b.id FROM {t} a JOIN {t} b ON a.id = b.id WHERE b.id IN (SELECT id FROM {t} WHERE {p})"
            ),
            13 => format!("SELECT ctid, tableoid::regclass, id FROM {t} WHERE {p}"),
            14 => format!("SELECT t FROM {t} t WHERE {}", self.condition()),
            15 => format!(
                "SELECT v.x, s.n FROM (VALUES (1), (5), (NULL), (400)) v(x) CROSS JOIN LATERAL (SELECT count(*) AS n, min(id) FROM {t} WHERE id > v.x AND ({p}) OFFSET 0) s"
            ),
            16 => format!("WITH c AS MATERIALIZED (SELECT * FROM {t} WHERE {p}) SELECT count(*), min(id) FROM c"),
            17 => format!("SELECT id, {} FROM {t} WHERE {p}", self.expression(Type::Text, 2)),
            18 => format!("SELECT count(*) FROM {t} WHERE NOT ({p})"),
            19 => self.join(&p),
            20 => self.lookups(&p),
            21 | 22 => self.grouping(&p),
            23..=26 => self.first_rows(&p),
            _ => {
                let of = *self.rng.pick(&TYPES);
                format!("SELECT {} FROM {t}", self.expression(of, 2))
            }
        }
    }

    /// Returns a query that joins the table with few of its rows, by columns of one type, once or twice. The key of a hash join's
    /// small side can filter a Smart Scan of the table.
    fn join(&mut self, condition: &str) -> String {
        let t = self.table.name.clone();
        let mut sql = format!("SELECT count(*), min(f.id), max(f.id), sum(f.id % 100), {{}} FROM {t} f");
        let mut counts = Vec::new();
        let mut conditions = Vec::new();
        for number in 0..1 + self.rng.below(2) {
            let (key, other) = self.join_keys();
            let of_few = format!("FROM {t} WHERE id BETWEEN {} AND {}", self.rng.below(300), self.rng.below(600));
            let equal = format!("f.{key} = d{number}.{other}");
            match self.rng.below(8) {
                kind @ 0..=4 => {
                    let kind = ["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"][kind];
                    // A few rows, so that a key with few values does not multiply the rows.
                    sql += &format!(" {kind} (SELECT * {of_few} ORDER BY id, ctid LIMIT 20) d{number} ON {equal}");
                    counts.push(format!("count(d{number}.id)"));
                }
                5 => conditions.push(format!("f.{key} IN (SELECT {other} {of_few})")),
                6 => conditions.push(format!("EXISTS (SELECT FROM (SELECT * {of_few}) d{number} WHERE {equal})")),
                _ => conditions.push(format!("NOT EXISTS (SELECT FROM (SELECT * {of_few}) d{number} WHERE {equal})")),
            }
        }
        if self.rng.chance(50) {
            conditions.push(format!("EXISTS (SELECT FROM {t} c WHERE c.id = f.id AND ({condition}))"));
        }
        counts.push("count(f.id)".to_owned());
        let wanted = if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) };
        sql.replacen("{}", &counts.join(", "), 1) + &wanted
    }

    /// Returns a query that groups and aggregates the rows of one to six joins of the table with some of its rows: inner and outer joins,
    /// semijoins and antijoins, with one to three equalities, also with other sides; some also with another comparison, or one with a correlated subquery. Group keys and
    /// arguments read columns of all sides that have columns.
    fn lookups(&mut self, condition: &str) -> String {
        let t = self.table.name.clone();
        let joins_max = if self.rng.chance(15) { 6 } else { 3 };
        let joins = 1 + self.rng.below(joins_max);
        let (mut sides, mut exists) = (vec!["f".to_owned()], Vec::new());
        let mut from = format!("(SELECT * FROM {t} WHERE {condition}) f");
        if self.rng.chance(60) {
            from = format!("{t} f");
        }
        for number in 0..joins {
            let (key, other) = if self.rng.chance(50) { ("id".into(), "id".into()) } else { self.join_keys() };
            let first = self.rng.below(600);
            let last = first + self.rng.below(if key == "id" { 2000 } else { 60 });
            // A chain: a side that is joined with another side.
            let first_side = if self.rng.chance(30) { self.rng.pick(&sides).clone() } else { "f".to_owned() };
            let equal = match self.rng.chance(50) {
                true => format!("{first_side}.{key} = d{number}.{other}"),
                false => format!("d{number}.{other} = {first_side}.{key}"),
            };
            let mut clauses = equal;
            for _ in 0..*self.rng.pick(&[0, 0, 0, 1, 1, 2]) {
                let (key, other) = self.join_keys();
                let side = self.rng.pick(&sides).clone();
                clauses += &format!(" AND {side}.{key} = d{number}.{other}");
            }
            let kind = match self.rng.below(12) {
                0 | 10 => "NOT EXISTS",
                1 | 11 => "EXISTS",
                2 | 3 => "LEFT JOIN",
                4 => "RIGHT JOIN",
                _ => "JOIN",
            };
            if kind == "JOIN" && self.rng.chance(20) || kind.ends_with("EXISTS") && self.rng.chance(50) {
                let (key, other) = self.join_keys();
                let side = self.rng.pick(&sides).clone();
                let comparison = self.rng.pick(&["<", "<=", ">", ">=", "<>", "<>"]);
                clauses += &match self.rng.chance(50) {
                    true => format!(" AND {side}.{key} {comparison} d{number}.{other}"),
                    false => format!(" AND d{number}.{other} {comparison} {side}.{key}"),
                };
            }
            let inner = format!("(SELECT * FROM {t} WHERE id BETWEEN {first} AND {last}) d{number}");
            if kind.ends_with("EXISTS") {
                exists.push(format!("{kind} (SELECT 1 FROM {inner} WHERE {clauses})"));
            } else {
                from += &format!(" {kind} {inner} ON {clauses}");
                sides.push(format!("d{number}"));
            }
        }
        if self.rng.chance(15) {
            exists.push(self.compared_with_aggregate(&sides));
        }
        let mut columns = vec![format!("{}.id", self.rng.pick(&sides))];
        for number in 0..self.table.columns.len() {
            columns.push(format!("{}.{}", self.rng.pick(&sides), self.table.columns[number].name));
        }
        exists.push("true".to_owned());
        let joined =
            format!("FROM (SELECT {} FROM {from} WHERE {}) j WHERE true", columns.join(", "), exists.join(" AND "));
        self.grouping("true").replace(&format!("FROM {t} WHERE true"), &joined)
    }

    /// Returns a comparison with a correlated subquery that has an aggregate.
    fn compared_with_aggregate(&mut self, sides: &[String]) -> String {
        let (outer, inner) = self.join_keys();
        let (key, other) = self.join_keys();
        let (side, key_side) = (self.rng.pick(sides).clone(), self.rng.pick(sides).clone());
        let comparison = self.rng.pick(&["<", "<=", ">", ">=", "=", "<>"]);
        let (compared, aggregate) = match self.rng.below(6) {
            0 => ("id".to_owned(), "0.5 * avg(g.id)".to_owned()),
            1 => ("id".to_owned(), "count(*)".to_owned()),
            2 => ("id".to_owned(), "coalesce(sum(g.id), 7)".to_owned()),
            3 => ("id".to_owned(), "sum(g.id) - min(g.id)".to_owned()),
            _ => (outer, format!("{}(g.{inner})", self.rng.pick(&["min", "max"]))),
        };
        let last = if self.rng.chance(40) { format!(" AND g.id < {}", self.rng.below(2500)) } else { String::new() };
        let subquery =
            format!("(SELECT {aggregate} FROM {} g WHERE g.{other} = {key_side}.{key}{last})", self.table.name);
        let condition = format!("{side}.{compared} {comparison} {subquery}");
        if self.rng.chance(25) { format!("({condition} OR {side}.id < {})", self.rng.below(500)) } else { condition }
    }

    /// Returns two columns that can be compared, often the same column.
    fn join_keys(&mut self) -> (String, String) {
        if self.table.columns.is_empty() || self.rng.chance(20) {
            return ("id".to_owned(), "id".to_owned());
        }
        let column = self.rng.pick(&self.table.columns).clone();
        let is_int = |of: Type| matches!(of, Type::Int2 | Type::Int4 | Type::Int8);
        let alike = |other: &&Column| other.of == column.of || is_int(other.of) && is_int(column.of);
        let others: Vec<&Column> = self.table.columns.iter().filter(alike).collect();
        (column.name.clone(), self.rng.pick(&others).name.clone())
    }

    /// Returns a query with ORDER BY and LIMIT. The query selects only the sort keys, because Postgres may return any of several
    /// rows with equal keys; the keys have a single text form per value.
    fn first_rows(&mut self, condition: &str) -> String {
        let condition = if self.rng.chance(40) { "true" } else { condition };
        let (mut keys, mut order, mut shown) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..1 + self.rng.below(3) {
            let (expression, of) = if !self.table.columns.is_empty() && self.rng.chance(80) {
                let column = self.rng.pick(&self.table.columns);
                (column.name.clone(), column.of)
            } else {
                let of = *self.rng.pick(&TYPES);
                (self.expression(of, 1), of)
            };
            keys.push(format!("{expression} AS k{number}"));
            let direction = self.rng.pick(&["", " DESC"]);
            order.push(format!("k{number}{direction}{}", self.rng.pick(&["", "", " NULLS FIRST", " NULLS LAST"])));
            shown.push(match of {
                Type::Numeric => format!("trim_scale(k{number})"),
                Type::Float4 | Type::Float8 => format!("k{number} + 0"),
                // The scales of equal numbers may differ.
                Type::Jsonb => format!("jsonb_typeof(k{number})"),
                Type::Text => format!("k{number}::text"),
                _ => format!("k{number}"),
            });
        }
        if self.rng.chance(50) {
            keys.push(self.any_column());
        }
        let limit = *self.rng.pick(&[1, 3, 10, 100, 5000]);
        let offset = if self.rng.chance(25) { format!(" OFFSET {}", self.rng.below(20)) } else { String::new() };
        let first = match self.rng.chance(10) {
            true => format!("{offset} FETCH FIRST {limit} ROWS WITH TIES"),
            false => format!(" LIMIT {limit}{offset}"),
        };
        format!(
            "SELECT {} FROM (SELECT {} FROM {} WHERE {condition} ORDER BY {}{first}) s",
            shown.join(", "),
            keys.join(", "),
            self.table.name,
            order.join(", ")
        )
    }

    /// Returns a query with GROUP BY over columns and expressions, with DISTINCT, or with aggregates over the whole table.
    pub fn grouping(&mut self, condition: &str) -> String {
        let t = self.table.name.clone();
        let keys: Vec<String> = (0..self.rng.below(4)).map(|_| self.key()).collect();
        let condition = if self.rng.chance(30) { "true" } else { condition };
        if !keys.is_empty() && self.rng.chance(12) {
            let condition = self.with_constant_keys(&keys, condition);
            return format!("SELECT DISTINCT {} FROM {t} WHERE {condition}", keys.join(", "));
        }
        let condition = self.with_constant_keys(&keys, condition);
        // If all aggregates ignore duplicates, the cell can remove duplicates.
        let distinct = self.rng.chance(12);
        let mut items: Vec<String> = (0..self.rng.below(5)).map(|_| self.aggregate(distinct)).collect();
        if distinct && items.is_empty() {
            items.push(self.aggregate(true));
        }
        // If all aggregates with DISTINCT have the same argument, the cell can group by the argument.
        let shared = if !distinct && self.rng.chance(20) { self.aggregates_of_distinct() } else { Vec::new() };
        items.extend(shared.iter().cloned());
        items.extend(keys.iter().filter(|_| self.rng.chance(80)).cloned());
        let grouping_sets = !keys.is_empty() && self.rng.chance(25);
        if grouping_sets && self.rng.chance(50) {
            items.push(format!("grouping({})", keys.join(", ")));
        }
        if !keys.is_empty() && !grouping_sets && self.rng.chance(10) {
            items.push(self.window_function(&keys));
        }
        if items.is_empty() {
            items.push("count(*)".to_owned());
        }
        let mut sql = format!("SELECT {} FROM {t} WHERE {condition}", items.join(", "));
        if grouping_sets {
            sql += &format!(" GROUP BY {}", self.grouping_sets(&keys));
        } else if !keys.is_empty() {
            sql += &format!(" GROUP BY {}", keys.join(", "));
        }
        if grouping_sets && self.rng.chance(15) {
            return sql
                + &format!(" HAVING grouping({}) <> {} OR count(*) > 1", self.rng.pick(&keys), self.rng.below(2));
        }
        if self.rng.chance(15) {
            let number = self.rng.below(4);
            sql += &match (distinct, shared.first()) {
                (true, _) => format!(" HAVING count(DISTINCT id % 10) > {number}"),
                (false, Some(aggregate)) => format!(" HAVING {aggregate} IS NOT NULL AND count(*) > {number}"),
                (false, None) => format!(" HAVING {} IS NOT NULL AND count(*) > {number}", self.aggregate(false)),
            };
        }
        sql
    }

    /// Returns a window function over groups whose result does not depend on the order of the groups.
    fn window_function(&mut self, keys: &[String]) -> String {
        match self.rng.below(3) {
            0 => format!("rank() OVER (ORDER BY count(*) DESC, {})", keys.join(", ")),
            1 => format!("sum(count(*)) OVER (PARTITION BY {})", self.rng.pick(keys)),
            _ => "count(*) OVER ()".to_owned(),
        }
    }

    /// Returns the condition, perhaps with an equality of a constant for each key that is a column, and for some expressions.
    /// PostgreSQL may remove such keys.
    fn with_constant_keys(&mut self, keys: &[String], condition: &str) -> String {
        let mut condition = condition.to_owned();
        if !self.rng.chance(12) {
            return condition;
        }
        for key in keys {
            let column = self.table.columns.iter().find(|column| column.name == *key).map(|column| column.of);
            if let Some(of) = column {
                condition = format!("({condition}) AND {key} = {}", self.literal(of));
            } else if key == "id" {
                condition = format!("({condition}) AND id = {}", self.rng.below(600));
            } else if self.rng.chance(50) {
                // The text of a value of most types.
                condition = format!("({condition}) AND {key} = '{}'", self.rng.below(2));
            }
        }
        condition
    }

    /// Returns several grouping sets of the keys, perhaps also none of them, or one twice.
    fn grouping_sets(&mut self, keys: &[String]) -> String {
        let all = keys.join(", ");
        match self.rng.below(6) {
            0 | 1 => format!("ROLLUP ({all})"),
            2 => format!("CUBE ({all})"),
            3 => format!("{}, ROLLUP ({all})", self.rng.pick(keys)),
            _ => {
                let sets: Vec<String> = (0..1 + self.rng.below(4))
                    .map(|_| {
                        let set: Vec<&str> = keys.iter().filter(|_| self.rng.chance(60)).map(String::as_str).collect();
                        format!("({})", set.join(", "))
                    })
                    .collect();
                format!("GROUPING SETS (({all}), {})", sets.join(", "))
            }
        }
    }

    /// Returns a query with GROUP BY, and with HAVING, ORDER BY or LIMIT. With LIMIT, the query returns only sort keys, in a
    /// form that is the same for equal values, unless all group keys are sort keys: PostgreSQL may return any of several groups
    /// with equal sort keys.
    pub fn top_groups(&mut self, condition: &str) -> String {
        let t = self.table.name.clone();
        let condition = if self.rng.chance(60) { "true" } else { condition };
        let mut keys: Vec<String> = (0..1 + self.rng.below(3)).map(|_| self.key()).collect();
        keys.dedup();
        let condition = self.with_constant_keys(&keys, condition);
        if self.rng.chance(10) {
            keys.push("1".to_owned());
        }
        let (mut items, mut shown) = (Vec::new(), Vec::new());
        for (number, key) in keys.iter().enumerate() {
            items.push(format!("{key} AS k{number}"));
            shown.push(format!("k{number}"));
        }
        let group_by: Vec<String> = (1..=keys.len()).map(|position| position.to_string()).collect();
        let distinct = self.rng.chance(30).then(|| self.argument_of_distinct());
        let mut having = Vec::new();
        for number in 0..1 + self.rng.below(3) {
            let (aggregate, is_numeric) = match &distinct {
                Some((argument, names, filter)) if self.rng.chance(60) => {
                    (format!("{}(DISTINCT {argument}){filter}", self.rng.pick(names)), true)
                }
                _ => self.ordered_aggregate(),
            };
            if is_numeric && self.rng.chance(30) {
                let (comparison, value) = (self.comparison(), self.rng.between(-5, 2000));
                having.push(format!("{aggregate} {comparison} {value}{}", self.rng.pick(&["", "", ".5", "::int8"])));
            }
            items.push(format!("{aggregate} AS a{number}"));
            shown.push(if is_numeric { format!("trim_scale(a{number}::numeric)") } else { format!("a{number}") });
        }
        if self.rng.chance(15) {
            having.push(format!("count(*) {} {}", self.comparison(), self.rng.below(5)));
        }
        let mut sql =
            format!("SELECT {} FROM {t} WHERE {condition} GROUP BY {}", items.join(", "), group_by.join(", "));
        if !having.is_empty() {
            sql += &format!(" HAVING {}", having.join(" AND "));
        }
        if self.rng.chance(15) {
            return format!("SELECT {} FROM ({sql}) s", shown.join(", "));
        }
        let is_total = self.rng.chance(40);
        let (mut order, mut sorted): (Vec<String>, Vec<usize>) = (Vec::new(), Vec::new());
        for _ in 0..self.rng.below(4) {
            let item = self.rng.below(items.len());
            if !sorted.contains(&item) {
                sorted.push(item);
            }
        }
        if is_total {
            (0..keys.len())
                .filter(|key| !sorted.contains(key))
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|key| sorted.push(key));
        }
        for item in &sorted {
            let direction = self.rng.pick(&["", " DESC"]);
            order.push(format!("{}{direction}{}", item + 1, self.rng.pick(&["", "", " NULLS FIRST", " NULLS LAST"])));
        }
        let limit = *self.rng.pick(&[1, 3, 10, 10, 100, 5000]);
        let offset = if self.rng.chance(25) { format!(" OFFSET {}", self.rng.below(20)) } else { String::new() };
        if order.is_empty() {
            return format!("SELECT count(*) FROM ({sql} LIMIT {limit}{offset}) s");
        }
        sql += &format!(" ORDER BY {}", order.join(", "));
        sql += &match self.rng.chance(10) {
            true => format!("{offset} FETCH FIRST {limit} ROWS WITH TIES"),
            false => format!(" LIMIT {limit}{offset}"),
        };
        if !is_total {
            shown = sorted.iter().map(|item| shown[*item].clone()).collect();
        }
        format!("SELECT {} FROM ({sql}) s", shown.join(", "))
    }

    /// Returns an aggregate whose equal results have the same text form after `trim_scale`, and whether its result is a number.
    fn ordered_aggregate(&mut self) -> (String, bool) {
        let usable: Vec<Column> = self
            .table
            .columns
            .iter()
            .filter(|column| column.of != Type::Uuid && column.of != Type::Bytea)
            .cloned()
            .collect();
        if usable.is_empty() || self.rng.chance(30) {
            return (self.rng.pick(&["count(*)", "count(*)", "sum(id)", "avg(id)", "max(id)"]).to_string(), true);
        }
        let column = self.rng.pick(&usable).clone();
        let names: &[&str] = match column.of {
            Type::Numeric => &["sum", "avg", "min", "max", "count", "stddev"],
            Type::Int2 | Type::Int4 | Type::Int8 => &["sum", "avg", "min", "max", "count", "var_pop"],
            Type::Bool => &["bool_and", "bool_or", "count"],
            Type::Float4 | Type::Float8 | Type::Jsonb => &["count"],
            _ => &["min", "max", "count"],
        };
        let name = *self.rng.pick(names);
        let is_number = name == "count" || matches!(column.of, Type::Numeric | Type::Int2 | Type::Int4 | Type::Int8);
        let filter = if self.rng.chance(10) { format!(" FILTER (WHERE {})", self.predicate(1)) } else { String::new() };
        (format!("{name}({}){filter}", column.name), is_number)
    }

    /// Returns an expression whose equal values have the same text form.
    fn key(&mut self) -> String {
        if self.rng.chance(60) {
            return self.group_key();
        }
        if self.rng.chance(15) {
            let field = *self.rng.pick(&["year", "month", "week", "dow", "hour", "minute", "second", "epoch"]);
            let of = *self.rng.pick(&[Type::Timestamp, Type::Timestamp, Type::Timestamptz]);
            return format!("extract({field} FROM {})", self.expression(of, 1));
        }
        if self.rng.chance(15) {
            // Numerics of one display scale.
            return match self.rng.below(4) {
                0 => format!("round({}, {})", self.expression(Type::Numeric, 1), self.rng.between(-2, 3)),
                1 => format!("floor({})", self.expression(Type::Numeric, 1)),
                2 => format!("({}::numeric * 1.5 + 2)", self.expression(Type::Int4, 1)),
                _ => format!("trunc({}, 1)", self.expression(Type::Numeric, 1)),
            };
        }
        if self.rng.chance(15) {
            return self.computed_key();
        }
        match *self.rng.pick(&[Type::Bool, Type::Int4, Type::Int8, Type::Text, Type::Date, Type::Timestamp]) {
            Type::Int8 => format!("(id % {})", 1 + self.rng.below(2000)),
            Type::Text => self.unpadded(1),
            of => format!("({})", self.expression(of, 1)),
        }
    }

    /// Returns a key that the cell computes only in some cases: a regular expression, or a function that stays in PostgreSQL,
    /// whose columns the cell groups by.
    fn computed_key(&mut self) -> String {
        let column = self.any_column();
        match self.rng.below(9) {
            0 => format!("md5({column}::text)"),
            7 | 8 => {
                let results = ["'low'", "'a longer text than fits into a word'", "''", "NULL"];
                let when =
                    |queries: &mut Self| format!("WHEN {} THEN {}", queries.predicate(1), queries.rng.pick(&results));
                let first = when(self);
                let second = if self.rng.chance(50) { when(self) } else { String::new() };
                format!("CASE {first} {second} ELSE {}::text END", self.rng.pick(&results))
            }
            1 => format!("to_char({}, 'YYYY-MM')", self.expression(Type::Timestamp, 0)),
            2 => format!("(({column})::text || '/' || (id % 7))"),
            3 => format!("initcap({})", self.unpadded(0)),
            4 => format!("({} ~ {})", self.unpadded(0), self.regular_expression()),
            _ => {
                let replacements: [&str; 4] = [r"\1", r"<\1\2>", r"\\\&", "x"];
                let new = *self.rng.pick(&replacements);
                let new = quoted(new);
                format!("regexp_replace({}, {}, {new})", self.unpadded(0), self.regular_expression())
            }
        }
    }

    fn regular_expression(&mut self) -> String {
        let mut pattern = String::new();
        for _ in 0..1 + self.rng.below(4) {
            let atom = *self.rng.pick(&[
                "a",
                "[^a]",
                ".",
                "(.)",
                "(e|[a-p]+)",
                "(?:in)",
                "([^e]*)",
                r"\.",
                "[[:alpha:]]",
                "語",
            ]);
            pattern += atom;
            if !atom.starts_with('(') || atom.starts_with("(?:") {
                pattern += *self.rng.pick(&["", "", "*", "+", "?", "*?"]);
            }
        }
        let (start, end) = (self.rng.chance(70), self.rng.chance(30));
        quoted(&format!("{}{pattern}{}", if start { "^" } else { "" }, if end { "$" } else { "" }))
    }

    /// Returns an aggregate whose result does not depend on the order of rows, perhaps with a filter; if `distinct`, one
    /// that ignores duplicates.
    fn aggregate(&mut self, distinct: bool) -> String {
        let of = if self.table.columns.is_empty() || self.rng.chance(20) {
            *self.rng.pick(&TYPES)
        } else {
            self.rng.pick(&self.table.columns).of
        };
        let depth = if self.rng.chance(40) { 2 } else { 0 };
        let mut argument =
            if of == Type::Text && depth > 0 { self.unpadded(depth) } else { self.expression(of, depth) };
        if matches!(of, Type::Int2 | Type::Int4 | Type::Int8) && self.rng.chance(40) {
            // A linear function of an integer.
            let operator = *self.rng.pick(&["+", "-", "*"]);
            let constant = *self.rng.pick(&["1", "-3", "7::int2", "100000", "2000000000", "3::int8"]);
            argument = format!("({argument} {operator} {constant})");
        }
        let names: &[&str] = match of {
            Type::Numeric => &["sum", "avg", "sum", "avg", "count", "stddev", "var_pop"],
            Type::Int2 | Type::Int4 | Type::Int8 => {
                &["sum", "avg", "min", "max", "count", "variance", "stddev_pop", "bit_and", "bit_or", "bit_xor"]
            }
            Type::Bool => &["bool_and", "bool_or", "every", "count"],
            Type::Text | Type::Date | Type::Time | Type::Timestamp | Type::Timestamptz => &["min", "max", "count"],
            Type::Enum => &["count", "min", "max"],
            Type::Float4 | Type::Float8 | Type::Uuid | Type::Bytea | Type::Jsonb => &["count"],
        };
        let name = *self.rng.pick(names);
        let distinct = distinct && !["stddev", "var_pop", "variance", "stddev_pop"].contains(&name);
        let call = match self.rng.below(20) {
            0..=15 if distinct => format!("{name}(DISTINCT {argument})"),
            _ if distinct => self.extreme_of_column(),
            0 => format!("{name}(DISTINCT {argument})"),
            1..=3 => "count(*)".to_owned(),
            4 => self.extreme_of_column(),
            _ => format!("{name}({argument})"),
        };
        if self.rng.chance(25) { format!("{call} FILTER (WHERE {})", self.predicate(1)) } else { call }
    }

    /// Returns aggregates with DISTINCT that have the same argument and the same filter.
    fn aggregates_of_distinct(&mut self) -> Vec<String> {
        let (argument, names, filter) = self.argument_of_distinct();
        let call = |queries: &mut Self| {
            let cast = if names.len() > 1 && queries.rng.chance(30) { "::int4" } else { "" };
            format!("{}(DISTINCT {argument}{cast}){filter}", queries.rng.pick(names))
        };
        (0..1 + self.rng.below(3)).map(|_| call(self)).collect()
    }

    /// Returns an argument, the aggregates that the cell computes of its distinct values, and a filter, which may be empty.
    fn argument_of_distinct(&mut self) -> (String, &'static [&'static str], String) {
        let of =
            *self.rng.pick(&[Type::Int2, Type::Int4, Type::Int4, Type::Int8, Type::Text, Type::Date, Type::Numeric]);
        let argument = match self.rng.below(4) {
            0 => self.group_key(),
            1 => format!("id % {}", 1 + self.rng.below(300)),
            _ if of == Type::Text => self.unpadded(0),
            depth => self.expression(of, depth - 2),
        };
        let is_number = matches!(of, Type::Int2 | Type::Int4);
        let filter = if self.rng.chance(25) { format!(" FILTER (WHERE {})", self.predicate(1)) } else { String::new() };
        (format!("({argument})"), if is_number { &["count", "sum", "avg"] } else { &["count"] }, filter)
    }

    /// Returns the minimum or maximum of a column whose equal values have the same text form, if there is one.
    fn extreme_of_column(&mut self) -> String {
        let alike =
            |of| !matches!(of, Type::Float4 | Type::Float8 | Type::Bool | Type::Uuid | Type::Bytea | Type::Jsonb);
        let columns: Vec<&str> =
            self.table.columns.iter().filter(|column| alike(column.of)).map(|column| column.name.as_str()).collect();
        if columns.is_empty() {
            return "min(id)".to_owned();
        }
        format!("{}({})", self.rng.pick(&["min", "max"]), self.rng.pick(&columns))
    }

    /// Returns a condition that is often selective, so that queries do not only return all rows or none.
    pub fn condition(&mut self) -> String {
        let first = self.predicate(2);
        if self.rng.chance(6) {
            return self.in_subquery(&first);
        }
        match self.rng.below(6) {
            0 => format!("{first} AND id BETWEEN {} AND {}", self.rng.below(200), self.rng.below(2500)),
            1 => format!("id % {} = 0 AND {first}", 1 + self.rng.below(7)),
            _ => first,
        }
    }

    /// Returns a condition with IN or NOT IN over a subquery that does not become a join.
    fn in_subquery(&mut self, condition: &str) -> String {
        let (key, other) = self.join_keys();
        let first = self.rng.below(600);
        let last = first + self.rng.below(1500);
        let known = if self.rng.chance(60) { format!(" AND {other} IS NOT NULL") } else { String::new() };
        let subquery = format!("(SELECT {other} FROM {} WHERE id BETWEEN {first} AND {last}{known})", self.table.name);
        match self.rng.below(3) {
            0 => format!("({condition}) AND {key} NOT IN {subquery}"),
            1 => format!("({condition}) OR {key} IN {subquery}"),
            _ => format!("{key} NOT IN {subquery}"),
        }
    }

    fn any_column(&mut self) -> String {
        if self.table.columns.is_empty() || self.rng.chance(10) {
            return "id".to_owned();
        }
        self.rng.pick(&self.table.columns).name.clone()
    }

    /// Returns a key whose equal values have the same text form. Otherwise the group shows the value of its first row:
    /// 0 or -0, 5.5 or 5.50.
    fn group_key(&mut self) -> String {
        let key = self.any_column();
        let column = self.table.columns.iter().find(|column| column.name == key);
        match column.map(|column| (column.of, column.declared)) {
            Some((Type::Float4 | Type::Float8 | Type::Jsonb, _) | (Type::Numeric, "numeric")) => {
                format!("({key})::text")
            }
            _ => key,
        }
    }

    /// Returns a text expression that is not a padded bpchar, for which '' and ' ' would be equal.
    fn unpadded(&mut self, depth: usize) -> String {
        format!("({})::text", self.expression(Type::Text, depth))
    }

    fn projection(&mut self) -> String {
        let count = self.rng.below(4);
        let mut items = vec!["id".to_owned()];
        for _ in 0..count {
            if self.rng.chance(70) {
                items.push(self.any_column());
            } else {
                let of = *self.rng.pick(&TYPES);
                items.push(self.expression(of, 1));
            }
        }
        items.swap(0, count);
        if self.rng.chance(10) { "1".to_owned() } else { items.join(", ") }
    }

    /// Returns aggregates whose results do not depend on the order of rows.
    fn aggregates(&mut self) -> String {
        let mut items = vec!["count(*)".to_owned()];
        for _ in 0..1 + self.rng.below(3) {
            let Some(column) = (!self.table.columns.is_empty()).then(|| self.rng.pick(&self.table.columns)) else {
                break;
            };
            let name = &column.name;
            items.push(match column.of {
                Type::Numeric => format!("{}({name})", self.rng.pick(&["sum", "avg", "count"])),
                Type::Int2 | Type::Int4 | Type::Int8 => match self.rng.below(4) {
                    0 => format!("sum({name})"),
                    1 => format!("avg({name})"),
                    2 => format!("min({name})"),
                    _ => format!("max({name})"),
                },
                Type::Text | Type::Date | Type::Time | Type::Timestamp | Type::Timestamptz => {
                    format!("{}({name})", self.rng.pick(&["min", "max", "count"]))
                }
                Type::Bool => format!("{}({name})", self.rng.pick(&["bool_and", "bool_or", "count"])),
                _ => format!("count(DISTINCT {name})"),
            });
        }
        items.join(", ")
    }

    pub fn predicate(&mut self, depth: usize) -> String {
        if depth > 0 {
            match self.rng.below(10) {
                0 | 1 => return format!("({} AND {})", self.predicate(depth - 1), self.predicate(depth - 1)),
                2 | 3 => return format!("({} OR {})", self.predicate(depth - 1), self.predicate(depth - 1)),
                4 => return format!("NOT ({})", self.predicate(depth - 1)),
                _ => {}
            }
        }
        // Usually on an existing column.
        let of = if self.table.columns.is_empty() || self.rng.chance(15) {
            *self.rng.pick(&TYPES)
        } else {
            self.rng.pick(&self.table.columns).of
        };
        let depth = if self.rng.chance(30) { 2 } else { 0 };
        let left = self.expression(of, depth);
        match self.rng.below(14) {
            0 => format!("{left} IS NULL"),
            1 => format!("{left} IS NOT NULL"),
            2 => {
                let (low, high) = (self.literal(of), self.literal(of));
                let not = if self.rng.chance(20) { "NOT " } else { "" };
                format!("{left} {not}BETWEEN {low} AND {high}")
            }
            3 => {
                let count = 1 + self.rng.below(5);
                let mut items: Vec<String> = (0..count).map(|_| self.literal(of)).collect();
                if self.rng.chance(10) {
                    items.push("NULL".to_owned());
                }
                let not = if self.rng.chance(30) { "NOT " } else { "" };
                format!("{left} {not}IN ({})", items.join(", "))
            }
            4 => {
                let distinct = if self.rng.chance(50) { "IS DISTINCT FROM" } else { "IS NOT DISTINCT FROM" };
                format!("{left} {distinct} {}", self.expression(of, 0))
            }
            5..=8 if of == Type::Jsonb => self.test_of_json(&left),
            5 if of == Type::Bool => left,
            6 if of == Type::Bool => {
                format!("{left} IS {}", self.rng.pick(&["TRUE", "FALSE", "UNKNOWN", "NOT TRUE", "NOT FALSE"]))
            }
            5..=8 if of == Type::Text => {
                let like = self.rng.pick(&["LIKE", "NOT LIKE", "LIKE", "ILIKE"]);
                match self.rng.chance(12) {
                    true => format!("starts_with({left}, {})", self.literal(of)),
                    false => format!("{left} {like} {}", self.pattern()),
                }
            }
            9 => {
                // Also compare numbers of different types.
                let other = if of.is_number() {
                    *self.rng.pick(&[Type::Int2, Type::Int4, Type::Int8, Type::Numeric, Type::Float8])
                } else {
                    of
                };
                format!("{left} {} {}", self.comparison(), self.expression(other, 1))
            }
            _ => format!("{left} {} {}", self.comparison(), self.literal(of)),
        }
    }

    /// Returns a condition on a jsonb expression.
    fn test_of_json(&mut self, json: &str) -> String {
        let key = *self.rng.pick(&JSON_KEYS);
        match self.rng.below(6) {
            0 => format!("{json} ? '{key}'"),
            1 => format!("{json} {} ARRAY['{key}', 'a', NULL]", self.rng.pick(&["?|", "?&"])),
            2 => format!("{json} @> {}", self.literal(Type::Jsonb)),
            3 => format!("{} <@ {json}", self.literal(Type::Jsonb)),
            4 => format!("{json} -> '{key}' IS NULL"),
            _ => format!("{} {} '{}'", self.text_of_json(json), self.comparison(), self.rng.pick(&["1", "a", "x"])),
        }
    }

    /// Returns a text that is part of a jsonb expression.
    fn text_of_json(&mut self, json: &str) -> String {
        let key = *self.rng.pick(&JSON_KEYS);
        match self.rng.below(7) {
            0 => format!("({json} ->> {})", self.rng.between(-2, 2)),
            1 => format!("({json} #>> '{{a,{}}}')", self.rng.pick(&["b", "0", "-1", "x"])),
            2 => format!("jsonb_typeof({json})"),
            3 => format!("({json} -> '{key}' ->> 'b')"),
            _ => format!("({json} ->> '{key}')"),
        }
    }

    fn comparison(&mut self) -> &'static str {
        ["=", "=", "<>", "<", "<=", ">", ">="][self.rng.below(7)]
    }

    fn pattern(&mut self) -> String {
        let word = *self.rng.pick(&WORDS);
        let word = word.replace('\\', "");
        quoted(&match self.rng.below(7) {
            0 => format!("{word}%"),
            1 => format!("%{word}"),
            2 => format!("%{word}%"),
            3 => format!("%{word}%{}%", self.rng.pick(&["a", "e", "pinto", "語"])),
            4 => format!("_{word}%"),
            5 => "%\\_%".to_owned(),
            _ => word,
        })
    }

    pub fn literal(&mut self, of: Type) -> String {
        let samples: Vec<&String> =
            self.table.columns.iter().filter(|column| column.of == of).flat_map(|column| &column.samples).collect();
        let value = if !samples.is_empty() && self.rng.chance(75) {
            (*self.rng.pick(&samples)).clone()
        } else {
            let value = of.value(of.name(), self.rng);
            if value.len() > 200 { self.rng.pick(&["pinto", "a"]).to_string() } else { value }
        };
        let value = if of == Type::Bytea && !value.starts_with("\\x") { "\\x41".to_owned() } else { value };
        format!("{}::{}", quoted(&value), of.name())
    }

    /// Returns an expression of a type: a column, a literal, or an operation, some of which raise errors on some rows.
    pub fn expression(&mut self, of: Type, depth: usize) -> String {
        if depth == 0 || self.rng.chance(35) {
            let columns: Vec<&str> =
                self.table.columns.iter().filter(|column| column.of == of).map(|column| column.name.as_str()).collect();
            return if !columns.is_empty() && self.rng.chance(85) {
                (*self.rng.pick(&columns)).to_owned()
            } else if of == Type::Int8 && self.rng.chance(60) {
                "id".to_owned()
            } else {
                self.literal(of)
            };
        }
        let d = depth - 1;
        if self.rng.chance(10) {
            return format!("coalesce({}, {})", self.expression(of, d), self.expression(of, d));
        }
        if self.rng.chance(10) {
            let second = match self.rng.chance(30) {
                true => format!(" WHEN {} THEN {}", self.predicate(0), self.expression(of, d)),
                false => String::new(),
            };
            let (condition, then) = (self.predicate(0), self.expression(of, d));
            let otherwise = match self.rng.chance(80) {
                true => format!(" ELSE {}", self.expression(of, d)),
                false => String::new(),
            };
            if self.rng.chance(30) {
                let tested = *self.rng.pick(&[Type::Int4, Type::Int2, Type::Text, Type::Date, Type::Numeric]);
                let (value, first) = (self.expression(tested, d), self.literal(tested));
                return format!("CASE {value} WHEN {first} THEN {then}{otherwise} END");
            }
            return format!("CASE WHEN {condition} THEN {then}{second}{otherwise} END");
        }
        if self.rng.chance(8) {
            let name = *self.rng.pick(&["nullif", "nullif", "greatest", "least"]);
            return format!("{name}({}, {})", self.expression(of, d), self.expression(of, d));
        }
        match of {
            Type::Bool => format!("({})", self.predicate(d)),
            Type::Int2 | Type::Int4 | Type::Int8 | Type::Float4 | Type::Float8 | Type::Numeric => self.number(of, d),
            Type::Text => match self.rng.below(10) {
                8 | 9 => {
                    let json = self.expression(Type::Jsonb, d);
                    self.text_of_json(&json)
                }
                0 => format!("lower({})", self.expression(of, d)),
                1 => format!("upper({})", self.expression(of, d)),
                2 => format!(
                    "substring({} from {} for {})",
                    self.expression(of, d),
                    self.rng.between(-2, 5),
                    // A negative length raises an error.
                    if self.rng.chance(4) { -1 } else { self.rng.between(0, 6) }
                ),
                3 => format!("({} || {})", self.expression(of, d), self.expression(of, d)),
                4 => {
                    let other =
                        *self.rng.pick(&[Type::Int4, Type::Numeric, Type::Date, Type::Uuid, Type::Bool, Type::Enum]);
                    format!("({})::text", self.expression(other, d))
                }
                5 => format!("left({}, {})", self.expression(of, d), self.rng.between(-2, 5)),
                6 if self.rng.chance(50) => {
                    // Field 0 raises an error.
                    let field = if self.rng.chance(4) { 0 } else { *self.rng.pick(&[-2, -1, 1, 2]) };
                    format!("split_part({}, 'a', {field})", self.expression(of, d))
                }
                6 => format!("btrim({})", self.expression(of, d)),
                _ => format!("replace({}, 'a', 'bb')", self.expression(of, d)),
            },
            Type::Date if self.rng.chance(10) => format!("({})::date", self.cast_text()),
            Type::Date => match self.rng.below(3) {
                0 => format!("({} + {})", self.expression(of, d), self.rng.between(-400, 400)),
                1 => format!("({} - {})", self.expression(of, d), self.rng.between(-400, 400)),
                _ => {
                    let from = *self.rng.pick(&[Type::Timestamp, Type::Timestamp, Type::Timestamptz]);
                    format!("({})::date", self.expression(from, d))
                }
            },
            Type::Timestamp if self.rng.chance(20) => {
                let zone = *self.rng.pick(&["UTC", "UTC", "Asia/Kolkata"]);
                format!("({} AT TIME ZONE '{zone}')", self.expression(Type::Timestamptz, d))
            }
            Type::Timestamp => match self.rng.below(3) {
                0 => format!("({} + interval '{} days')", self.expression(of, d), self.rng.between(-40, 40)),
                1 => {
                    let field =
                        *self.rng.pick(&["month", "week", "quarter", "year", "day", "hour", "minute", "decade"]);
                    format!("date_trunc('{field}', {})", self.expression(of, d))
                }
                _ => format!("({})::timestamp", self.expression(Type::Date, d)),
            },
            Type::Timestamptz if self.rng.chance(40) => match self.rng.below(4) {
                0 => format!("({})::timestamptz", self.expression(Type::Timestamp, d)),
                _ => {
                    let field = *self.rng.pick(&["month", "week", "quarter", "year", "day", "hour", "minute"]);
                    format!("date_trunc('{field}', {})", self.expression(of, d))
                }
            },
            Type::Timestamptz => {
                format!("({} - interval '{} hours')", self.expression(of, d), self.rng.between(-40, 40))
            }
            Type::Time => format!("({} + interval '{} minutes')", self.expression(of, d), self.rng.between(-90, 90)),
            Type::Uuid | Type::Bytea | Type::Enum => self.expression(of, 0),
            Type::Jsonb => {
                let (json, key) = (self.expression(of, 0), *self.rng.pick(&JSON_KEYS));
                match self.rng.below(4) {
                    0 => format!("({json} -> {})", self.rng.between(-2, 2)),
                    1 => format!("({json} #> '{{a,{key}}}')"),
                    _ => format!("({json} -> '{key}')"),
                }
            }
        }
    }

    /// Returns a text from a jsonb value that can often be cast to another type. The condition avoids most errors.
    fn cast_text(&mut self) -> String {
        let json = self.expression(Type::Jsonb, 0);
        let (key, pattern) = *self.rng.pick(&[("d", "____-__-__"), ("n", "%"), ("a", "_"), ("b", "_")]);
        format!("CASE WHEN {json} ->> '{key}' LIKE '{pattern}' THEN {json} ->> '{key}' END")
    }

    fn number(&mut self, of: Type, depth: usize) -> String {
        let cast = of.name();
        if self.rng.chance(12) {
            let name = *self.rng.pick(&["greatest", "least"]);
            return format!("{name}({}, {})", self.expression(of, depth), self.expression(of, depth));
        }
        if matches!(of, Type::Numeric | Type::Float8) && self.rng.chance(15) {
            let name = *self.rng.pick(&["round", "trunc", "ceil", "floor"]);
            let argument = self.expression(of, depth);
            return match self.rng.below(4) {
                0 if of == Type::Numeric => format!("{name}({argument} / {})", self.rng.pick(&["10", "100.0", "3"])),
                1 if of == Type::Float8 => format!("sqrt({argument})"),
                _ => format!("{name}({argument})"),
            };
        }
        if matches!(of, Type::Int2 | Type::Int4 | Type::Int8) && self.rng.chance(10) {
            let operator = *self.rng.pick(&["&", "|", "#"]);
            return format!("({} {operator} {})", self.expression(of, depth), self.expression(of, depth));
        }
        if of == Type::Int4 && self.rng.chance(12) {
            return format!("({} - {})", self.expression(Type::Date, depth), self.expression(Type::Date, depth));
        }
        match self.rng.below(12) {
            0 | 1 => format!("({} + {})", self.expression(of, depth), self.expression(of, depth)),
            2 => format!("({} - {})", self.expression(of, depth), self.expression(of, depth)),
            3 => format!("({} * {})", self.expression(of, depth), self.expression(of, depth)),
            4 => format!("({} / {})", self.expression(of, depth), self.expression(of, depth)),
            5 => format!("abs({})", self.expression(of, depth)),
            6 => format!("(- {})", self.expression(of, depth)),
            7 => format!("length({})::{cast}", self.expression(Type::Text, depth)),
            8 => {
                let (field, from) = *self.rng.pick(&[
                    ("year", Type::Date),
                    ("month", Type::Date),
                    ("day", Type::Timestamp),
                    ("epoch", Type::Timestamp),
                    ("dow", Type::Date),
                    ("hour", Type::Time),
                ]);
                format!("extract({field} from {})::{cast}", self.expression(from, depth))
            }
            9 if matches!(of, Type::Int2 | Type::Int4 | Type::Int8) => {
                format!("({} % {})", self.expression(of, depth), self.expression(of, depth))
            }
            10 => match self.rng.below(3) {
                0 => format!("({})::{cast}", self.expression(Type::Text, depth)),
                1 => format!("({})::{cast}", self.cast_text()),
                _ => {
                    let json = self.expression(Type::Jsonb, 0);
                    let number = format!("{json} -> '{}'", self.rng.pick(&JSON_KEYS));
                    format!("CASE WHEN jsonb_typeof({number}) = 'number' THEN ({number})::{cast} END")
                }
            },
            _ => {
                let other =
                    *self.rng.pick(&[Type::Int2, Type::Int4, Type::Int8, Type::Numeric, Type::Float4, Type::Float8]);
                format!("({})::{cast}", self.expression(other, depth))
            }
        }
    }
}
