//! Rules about vacuum and freezing.

use super::{Found, Judgement};
use crate::figures::sum;
use crate::table::grouped;
use crate::view::{View, top};

const HORIZON_XIDS_MIN: f64 = 1_000_000.0;
const FREEZE_MAX_AGE_DEFAULT: f64 = 200_000_000.0;
const FREEZE_FACTOR: f64 = 1.5;

pub(super) fn horizon(view: &View<'_>) -> Judgement {
    let holders =
        top(&view.document.vacuum_horizon, 3, |holder| holder.age_xids.filter(|age| *age >= HORIZON_XIDS_MIN));
    let Some(oldest) = holders.first() else { return Some(Vec::new()) };
    let mut found = Found::new(format!("{} holds the vacuum horizon", oldest.holder));
    for holder in &holders {
        let age = grouped(holder.age_xids.unwrap_or(0.0), 0);
        let detail = holder.detail.known().map_or_else(String::new, |detail| format!(" ({detail})"));
        found = found.evidence("vacuum-horizon", format!("{}{detail}: {age} transactions", holder.holder));
    }
    let dead = sum(view.document.tables.iter().map(|table| table.n_dead_tup)).filter(|dead| *dead > 0.0);
    if let Some(dead) = dead {
        found = found.evidence("dead-rows", format!("{} dead rows", grouped(dead, 0)));
    }
    Some(vec![found.recommend("End the transaction, or drop the slot", None)])
}

pub(super) fn freeze_age(view: &View<'_>) -> Judgement {
    let document = view.document;
    if document.databases.iter().all(|database| database.frozen_age.is_none()) {
        return None;
    }
    let limit = document.setting("autovacuum_freeze_max_age").and_then(|limit| limit.end.known()?.parse::<f64>().ok());
    let limit = FREEZE_FACTOR * limit.unwrap_or(FREEZE_MAX_AGE_DEFAULT);
    let old = top(&document.databases, 3, |database| database.frozen_age.filter(|age| *age >= limit));
    let Some(oldest) = old.first() else { return Some(Vec::new()) };
    let mut found = Found::new(format!("Database {} is not frozen in time", oldest.name));
    for database in &old {
        let age = grouped(database.frozen_age.unwrap_or(0.0), 0);
        found = found.evidence("freeze-age", format!("{}: freeze age of {age} transactions", database.name));
    }
    for table in top(&document.tables, 3, |table| table.frozen_age.filter(|age| *age >= limit)) {
        let age = grouped(table.frozen_age.unwrap_or(0.0), 0);
        found = found.evidence("freeze-age", format!("{}.{}: {age}", table.schema, table.name));
    }
    Some(vec![found.recommend("Find out why autovacuum cannot freeze these tables, and VACUUM (FREEZE) them", None)])
}
