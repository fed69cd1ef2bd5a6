//! Masking: replaces statement texts and names in an export.
//!
//! A name becomes its category with a number, the same in all tables of one export, so that reports of the import group rows
//! as before. Query and plan identifiers, figures, and names that PostgreSQL or this extension defines stay. A text column
//! without a rule here is masked as a name, so that a column of a later release cannot leak.

use super::super::source::Failure;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// What an export replaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Masking {
    /// Texts of statements and plans.
    pub texts: bool,
    /// Names of databases, roles, relations, applications, clients and so on; implies `texts`, because texts contain names.
    pub names: bool,
}

impl Masking {
    /// Parses the values of --mask.
    pub fn parse(values: &[String]) -> Self {
        let has = |name: &str| values.iter().any(|value| value == name);
        Self { texts: has("texts") || has("names"), names: has("names") }
    }
}

/// How the values of a text column are masked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Keep,
    /// A name of this category.
    Name(&'static str),
    /// A name, unless it is one of these.
    NameExcept(&'static str, &'static [&'static str]),
    /// The name of a relation or schema, unless the schema is one of PostgreSQL's.
    OfSchema(&'static str),
    QueryText,
    PlanText,
    Facts,
    NoteText,
    SettingName,
    SettingValue,
    ActivityObject,
}

/// Precedes the relation in the name of the setting that contains the relation's storage parameters.
const STORAGE_PARAMETERS: &str = "storage parameters of ";

/// Kinds of notes whose texts the extension composes without names.
const PLAIN_NOTES: [&str; 11] = [
    "server restart",
    "host restart",
    "crash",
    "upgrade",
    "clock step",
    "statistics reset",
    "statements evicted",
    "statement tracking changed",
    "objects dropped",
    "source missing",
    "texts lost",
];

/// Objects of notes that are no names: the kinds of statistics, and extensions that are sources.
const NOTE_OBJECTS: [&str; 25] = [
    "statistic",
    "database_stat",
    "statement_stat",
    "plan_stat",
    "table_stat",
    "index_stat",
    "io_stat",
    "session_io_stat",
    "slru_stat",
    "event_stat",
    "cell_io_stat",
    "cell_file_stat",
    "cell_stat",
    "cell_disk_stat",
    "iorm_stat",
    "os_stat",
    "setting",
    "cpu_stat",
    "activity",
    "object_name",
    "relation_stat",
    "pg_stat_statements",
    "pg_stat_kcache",
    "pg_wait_sampling",
    "kcache_stat",
];

/// Schemas whose relations have names that PostgreSQL chooses.
const SYSTEM_SCHEMAS: [&str; 3] = ["pg_catalog", "pg_toast", "information_schema"];

/// Facts of a snapshot that contain no name. Numbers and booleans stay in any case.
const PLAIN_FACTS: [&str; 11] = [
    "system_identifier",
    "startup_time",
    "incarnation",
    "platform",
    "wal_lsn",
    "server_version",
    "cellar_version",
    "open_us",
    "on_cell",
    "day",
    "time",
];

/// Settings whose values are keywords of PostgreSQL.
const KEYWORD_SETTINGS: [&str; 30] = [
    "archive_mode",
    "bytea_output",
    "client_encoding",
    "compute_query_id",
    "constraint_exclusion",
    "data_checksums",
    "DateStyle",
    "default_toast_compression",
    "default_transaction_isolation",
    "dynamic_shared_memory_type",
    "huge_pages",
    "huge_pages_status",
    "io_method",
    "log_destination",
    "log_error_verbosity",
    "log_statement",
    "password_encryption",
    "plan_cache_mode",
    "recovery_init_sync_method",
    "recovery_prefetch",
    "server_encoding",
    "server_version",
    "shared_memory_type",
    "stats_fetch_consistency",
    "synchronous_commit",
    "TimeZone",
    "track_functions",
    "transaction_isolation",
    "wal_level",
    "wal_sync_method",
];

/// Prefixes of settings that extensions of PostgreSQL and this one define.
const KNOWN_PREFIXES: [&str; 6] =
    ["cellar", "pg_stat_statements", "auto_explain", "plpgsql", "pg_prewarm", "pg_wait_sampling"];

const STATEMENT_KEYWORDS: [&str; 24] = [
    "SELECT", "INSERT", "UPDATE", "DELETE", "MERGE", "WITH", "VALUES", "COPY", "CREATE", "ALTER", "DROP", "TRUNCATE",
    "VACUUM", "ANALYZE", "BEGIN", "COMMIT", "ROLLBACK", "SET", "SHOW", "EXPLAIN", "FETCH", "CALL", "REFRESH", "LOCK",
];

/// Words of the names of plan nodes.
const NODE_WORDS: &str = " Result ProjectSet Insert Update Delete Merge Append Recursive Union BitmapAnd BitmapOr Nested Loop \
    Left Right Full Semi Anti Join Hash Seq Sample Gather Index Only Scan Backward Bitmap Heap Tid Range Subquery Function Table \
    Values CTE Named Tuplestore WorkTable Foreign Custom Materialize Memoize Sort Incremental Group Aggregate GroupAggregate \
    HashAggregate MixedAggregate Partial Finalize Parallel Async WindowAgg Unique SetOp HashSetOp LockRows Limit ";

/// Names of the extension's plan nodes.
const CUSTOM_NODES: [&str; 2] = ["(Smart Scan)", "(Smart Scan Aggregate)"];

fn rule(table: &str, column: &str) -> Rule {
    use Rule::*;
    match (table, column) {
        (
            _,
            "stats_reset" | "kind" | "unit" | "backend_type" | "class" | "state" | "event" | "wait_event_type"
            | "detail" | "relkind",
        ) => Keep,
        ("io_stat", "object" | "context") => Keep,
        ("statistic" | "slru_stat" | "os_stat", "name") => Keep,
        ("table_stat", "storage_options") => Keep,
        ("setting", "source") => Keep,
        ("instance", "name") => Name("instance"),
        ("baseline", "name") => Name("baseline"),
        ("snapshot", "requested_by") => NameExcept("requester", &["schedule", "user"]),
        ("snapshot", "facts") => Facts,
        ("note", "object") => NameExcept("object", &NOTE_OBJECTS),
        ("note", "description") => NoteText,
        ("database_stat", "datname") => Name("database"),
        (_, "rolname") => Name("role"),
        ("object_name", "name") => NameExcept("name", &["pg_default", "pg_global"]),
        (_, "schemaname") => OfSchema("schema"),
        (_, "relname") => OfSchema("table"),
        (_, "indexrelname") => OfSchema("index"),
        ("cell_io_stat" | "cell_file_stat" | "cell_stat" | "cell_disk_stat" | "iorm_stat", "cell") => Name("cell"),
        ("cell_stat", "name") | ("iorm_stat", "size") => Keep,
        ("cell_disk_stat", "disk") => Name("disk"),
        ("cell_disk_stat", "disk_type" | "operation") => Keep,
        ("iorm_stat", "database_id") => Name("database_id"),
        ("iorm_stat", "database") => NameExcept("database", &["_OTHER_DATABASE_"]),
        ("cell_file_stat", "file_type") => Keep,
        ("setting", "name") => SettingName,
        ("setting", "setting") => SettingValue,
        (_, "application") => NameExcept("application", &[""]),
        (_, "client") => NameExcept("client", &[""]),
        (_, "consumer_group") => {
            NameExcept("consumer_group", &["OTHER_GROUPS", "_ORACLE_BACKGROUND_GROUP_", "_ORACLE_LOWPRIBG_GROUP_"])
        }
        ("activity", "object") => ActivityObject,
        ("query_text", "query") => QueryText,
        ("plan_text", "plan") => PlanText,
        _ => Name("value"),
    }
}

/// A column of a table as the masker needs it.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    /// The type is a text or JSON.
    pub is_text: bool,
}

/// Replaces names by tokens. One masker serves a whole export.
pub struct Masker {
    masking: Masking,
    tokens: HashMap<(&'static str, String), String>,
    counts: HashMap<&'static str, usize>,
}

impl Masker {
    pub fn new(masking: Masking) -> Self {
        Self { masking, tokens: HashMap::new(), counts: HashMap::new() }
    }

    /// Returns the token of a name.
    fn token(&mut self, category: &'static str, name: &str) -> String {
        let count = self.counts.entry(category).or_default();
        self.tokens
            .entry((category, name.to_owned()))
            .or_insert_with(|| {
                *count += 1;
                format!("{category}_{count}")
            })
            .clone()
    }

    /// Masks a text of session samples, which is in the column `column` of samples.
    pub fn word(&mut self, column: &str, word: &str) -> String {
        if !self.masking.names || !matches!(column, "application" | "client" | "consumer_group") {
            return word.to_owned();
        }
        self.apply(rule("sample_chunk", column), word, &Row::default())
    }

    /// Masks the values of a row in place.
    pub fn row(&mut self, table: &str, columns: &[Column], values: &mut [Option<String>]) -> Result<(), Failure> {
        if columns.len() != values.len() {
            return Err(Failure::error(format!(
                "a row of awr.{table} has {} columns instead of {}",
                values.len(),
                columns.len()
            )));
        }
        let row = Row {
            kind: value_of(columns, values, if table == "object_name" { "class" } else { "kind" }),
            schema: value_of(columns, values, "schemaname"),
            name: value_of(columns, values, "name"),
        };
        for (column, value) in columns.iter().zip(values.iter_mut()) {
            let Some(text) = value.as_deref().filter(|_| column.is_text) else { continue };
            let rule = rule(table, &column.name);
            let masked = match rule {
                Rule::QueryText | Rule::PlanText => self.masking.texts,
                _ => self.masking.names,
            };
            if masked {
                *value = Some(self.apply(rule, text, &row));
            }
        }
        Ok(())
    }

    fn apply(&mut self, rule: Rule, text: &str, row: &Row) -> String {
        match rule {
            Rule::Keep => text.to_owned(),
            Rule::Name(category) => self.token(category, text),
            Rule::NameExcept(_, plain) if plain.contains(&text) => text.to_owned(),
            Rule::NameExcept("name", _) => {
                let category = if row.kind == "role" { "role" } else { "tablespace" };
                self.token(category, text)
            }
            Rule::NameExcept("object", _) => match text.strip_prefix("database ") {
                Some(database) => format!("database {}", self.token("database", database)),
                None => self.token("object", text),
            },
            Rule::NameExcept(category, _) => self.token(category, text),
            Rule::OfSchema(_) if SYSTEM_SCHEMAS.contains(&row.schema.as_str()) => text.to_owned(),
            Rule::OfSchema(category) => self.token(category, text),
            Rule::QueryText => query_text(text),
            Rule::PlanText => plan_text(text),
            Rule::Facts => self.facts(text),
            Rule::NoteText if PLAIN_NOTES.contains(&row.kind.as_str()) => text.to_owned(),
            Rule::NoteText => "(masked)".to_owned(),
            Rule::SettingName => self.setting_name(text),
            Rule::SettingValue if is_plain_setting(&row.name, text) => text.to_owned(),
            Rule::SettingValue => self.token("value", text),
            Rule::ActivityObject => self.activity_object(text),
        }
    }

    /// Masks the JSON object of a snapshot's facts.
    fn facts(&mut self, text: &str) -> String {
        let Ok(Value::Object(facts)) = serde_json::from_str::<Value>(text) else { return "{}".to_owned() };
        let mut masked = Map::new();
        for (key, value) in facts {
            let value = match value {
                Value::String(text) if !PLAIN_FACTS.contains(&key.as_str()) && !text.is_empty() => {
                    let category = match key.as_str() {
                        "cluster_name" => "instance",
                        "host" => "host",
                        _ => "value",
                    };
                    Value::String(self.token(category, &text))
                }
                Value::Array(_) | Value::Object(_) if !PLAIN_FACTS.contains(&key.as_str()) => continue,
                plain => plain,
            };
            masked.insert(key, value);
        }
        Value::Object(masked).to_string()
    }

    /// `extension NAME in DATABASE`, `storage parameters of RELATION in DATABASE`, or the name of a setting.
    fn setting_name(&mut self, text: &str) -> String {
        if let Some((extension, database)) = text.strip_prefix("extension ").and_then(|rest| rest.split_once(" in ")) {
            return format!("extension {extension} in {}", self.token("database", database));
        }
        if let Some((relation, database)) =
            text.strip_prefix(STORAGE_PARAMETERS).and_then(|rest| rest.rsplit_once(" in "))
        {
            let (relation, database) = (self.token("object", relation), self.token("database", database));
            return format!("{STORAGE_PARAMETERS}{relation} in {database}");
        }
        match text.split_once('.') {
            Some((prefix, _)) if !KNOWN_PREFIXES.contains(&prefix) => self.token("setting", text),
            _ => text.to_owned(),
        }
    }

    fn activity_object(&mut self, text: &str) -> String {
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if is_number(text) || text.strip_prefix("session ").is_some_and(is_number) {
            return text.to_owned();
        }
        match text.strip_prefix("replication slot ") {
            Some(slot) => format!("replication slot {}", self.token("object", slot)),
            None => self.token("object", text),
        }
    }
}

/// Values of a row on which the masking of other values depends; empty if absent.
#[derive(Default)]
struct Row {
    kind: String,
    schema: String,
    name: String,
}

fn value_of(columns: &[Column], values: &[Option<String>], name: &str) -> String {
    let position = columns.iter().position(|column| column.name == name);
    position.and_then(|position| values[position].clone()).unwrap_or_default()
}

/// Returns whether the value of a setting is a number, a keyword or a version.
fn is_plain_setting(name: &str, value: &str) -> bool {
    value.parse::<f64>().is_ok()
        || matches!(value, "" | "on" | "off" | "auto" | "always" | "none" | "default")
        || KEYWORD_SETTINGS.contains(&name)
        || name.starts_with("extension ")
        || name.starts_with(STORAGE_PARAMETERS)
}

/// Replaces a statement by its first keyword.
fn query_text(text: &str) -> String {
    let word: String =
        text.trim_start().chars().take_while(char::is_ascii_alphabetic).collect::<String>().to_ascii_uppercase();
    if STATEMENT_KEYWORDS.contains(&word.as_str()) { format!("{word} (masked)") } else { "(masked)".to_owned() }
}

/// Keeps the shape of a plan: the indented names of its nodes.
fn plan_text(text: &str) -> String {
    let mut shape = String::new();
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        let node = match trimmed.strip_prefix("->") {
            Some(node) => node.trim_start(),
            None if number == 0 => trimmed,
            None => continue,
        };
        let indent = line.len() - node.len();
        let words: Vec<&str> =
            node.split(' ').take_while(|word| !word.is_empty() && NODE_WORDS.contains(&format!(" {word} "))).collect();
        if number > 0 {
            shape.push('\n');
        }
        shape.push_str(&line[..indent]);
        shape.push_str(&if words.is_empty() { "(node)".to_owned() } else { words.join(" ") });
        if let Some(name) = CUSTOM_NODES
            .iter()
            .find(|name| node.strip_prefix("Custom Scan ").is_some_and(|rest| rest.starts_with(**name)))
        {
            shape.push(' ');
            shape.push_str(name);
        }
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masker() -> Masker {
        Masker::new(Masking::parse(&["names".to_owned()]))
    }

    fn column(name: &str) -> Column {
        Column { name: name.to_owned(), is_text: true }
    }

    /// Masks one row of text columns.
    fn masked(masker: &mut Masker, table: &str, row: &[(&str, &str)]) -> Vec<String> {
        let columns: Vec<Column> = row.iter().map(|(name, _)| column(name)).collect();
        let mut values: Vec<Option<String>> = row.iter().map(|(_, value)| Some((*value).to_owned())).collect();
        masker.row(table, &columns, &mut values).unwrap();
        values.into_iter().map(Option::unwrap).collect()
    }

    #[test]
    fn a_name_has_one_token_in_all_tables() {
        let mut masker = masker();
        let table = masked(&mut masker, "table_stat", &[("schemaname", "hr"), ("relname", "salaries")]);
        let index = masked(
            &mut masker,
            "index_stat",
            &[("schemaname", "hr"), ("relname", "salaries"), ("indexrelname", "salaries_pk")],
        );
        assert_eq!(table, ["schema_1", "table_1"]);
        assert_eq!(index, ["schema_1", "table_1", "index_1"]);
        assert_eq!(masked(&mut masker, "plan_stat", &[("rolname", "alice")]), ["role_1"]);
        assert_eq!(masked(&mut masker, "object_name", &[("class", "role"), ("name", "alice")])[1], "role_1");
        assert_eq!(masker.word("application", "payroll"), "application_1");
        assert_eq!(masked(&mut masker, "cpu_stat", &[("application", "payroll")]), ["application_1"]);
        assert_eq!(masker.word("consumer_group", "payroll"), "consumer_group_1");
        assert_eq!(masker.word("consumer_group", "OTHER_GROUPS"), "OTHER_GROUPS");
        assert_eq!(masker.word("state", "active"), "active");
    }

    #[test]
    fn names_of_postgresql_stay() {
        let mut masker = masker();
        assert_eq!(
            masked(&mut masker, "table_stat", &[("schemaname", "pg_catalog"), ("relname", "pg_class")]),
            ["pg_catalog", "pg_class"]
        );
        assert_eq!(masked(&mut masker, "setting", &[("name", "work_mem"), ("setting", "4096")]), ["work_mem", "4096"]);
        assert_eq!(
            masked(&mut masker, "activity", &[("kind", "xmin holder"), ("object", "session 12")])[1],
            "session 12"
        );
    }

    #[test]
    fn values_of_settings_that_may_contain_names_are_masked() {
        let mut masker = masker();
        assert_eq!(masked(&mut masker, "setting", &[("name", "data_directory"), ("setting", "/srv/hr")])[1], "value_1");
        assert_eq!(masked(&mut masker, "setting", &[("name", "payroll.tenant"), ("setting", "on")])[0], "setting_1");
        assert_eq!(
            masked(&mut masker, "setting", &[("name", "extension cellar in hr"), ("setting", "1.1")]),
            ["extension cellar in database_1", "1.1"]
        );
        assert_eq!(
            masked(
                &mut masker,
                "setting",
                &[("name", "storage parameters of pay.salary in hr"), ("setting", "fillfactor=70")]
            ),
            ["storage parameters of object_1 in database_1", "fillfactor=70"]
        );
    }

    #[test]
    fn a_column_without_a_rule_is_masked() {
        assert_eq!(masked(&mut masker(), "later_table", &[("later_column", "secret")]), ["value_1"]);
    }

    #[test]
    fn facts_keep_figures_only() {
        let facts = r#"{"host": "db1.hr", "cluster_name": "payroll", "sessions": 4, "server_version": "17.2", "later": "secret", "list": ["secret"]}"#;
        let masked = masked(&mut masker(), "snapshot", &[("facts", facts)]).remove(0);
        assert!(!masked.contains("hr") && !masked.contains("payroll") && !masked.contains("secret"), "{masked}");
        assert!(masked.contains("\"sessions\":4") && masked.contains("17.2"), "{masked}");
    }

    #[test]
    fn a_plan_keeps_its_shape() {
        let plan = "Sort\n  Sort Key: salaries.name\n  ->  Hash Join\n        Hash Cond: (a.b = c.d)\n        ->  Index Scan using secret on salaries s\n              Index Cond: (a = 'Scan'::text)\n        ->  Custom Scan (Smart Scan) on secret";
        assert_eq!(
            plan_text(plan),
            "Sort\n  ->  Hash Join\n        ->  Index Scan\n        ->  Custom Scan (Smart Scan)"
        );
        assert_eq!(plan_text("Secret on x"), "(node)");
    }

    #[test]
    fn a_statement_keeps_its_kind() {
        assert_eq!(query_text("  select name from salaries where id = 7"), "SELECT (masked)");
        assert_eq!(query_text("salaries"), "(masked)");
    }

    #[test]
    fn texts_alone_keep_names() {
        let mut masker = Masker::new(Masking::parse(&["texts".to_owned()]));
        assert_eq!(masked(&mut masker, "database_stat", &[("datname", "hr")]), ["hr"]);
        assert_eq!(masked(&mut masker, "query_text", &[("query", "SELECT 1")]), ["SELECT (masked)"]);
    }
}
