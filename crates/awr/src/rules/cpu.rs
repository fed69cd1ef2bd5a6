//! Rules about CPU.

use super::{Found, Judgement, share_text};
use crate::table::duration;
use crate::view::{View, one_line, top};

/// The impact is the run-queue time outside of waits, so that findings about waits count the other part. The kernel counts a
/// process from its start to its exit, so that a part of its figure is no DB time.
pub(super) fn run_queue(view: &View<'_>) -> Judgement {
    let us = view.model.run_queue_outside_waits_us()?;
    let all_us = view.model.run_queue_us?;
    let mut found = Found::new("Sessions waited for a core").impact(us).covers(all_us).evidence(
        "time-model",
        format!(
            "the processes of sessions waited {} for a core, also while they started, waited or were idle; at most {} of it is \
             DB time outside of waits, {}",
            duration(all_us),
            duration(us),
            share_text(view, us)
        ),
    );
    if let Some(sessions) = view.model.sessions_on_cpu() {
        let cpus = view.document.cpus().map_or_else(String::new, |cpus| format!(" of {cpus:.0}"));
        found = found.evidence("instance-cpu", format!("{sessions:.1} sessions on CPU or waiting for a core{cpus}"));
    }
    Some(vec![found.recommend("Add cores, or lower the number of active sessions or parallel workers", Some(us))])
}

pub(super) fn bound(view: &View<'_>) -> Judgement {
    let us = view.model.db_cpu_us?;
    if view.model.percent_of_db_time(Some(us))? < 50.0 {
        return Some(Vec::new());
    }
    let mut found = Found::new("The workload is CPU bound")
        .impact(us)
        .evidence("time-model", format!("DB CPU: {}, {}", duration(us), share_text(view, us)));
    if let Some(percent) = view.model.percent_of_host_cpu(view.document.cpus()) {
        found = found.evidence("instance-cpu", format!("sessions used {percent:.0} % of the host's CPUs"));
    }
    for sql in top(&view.sql, 3, |sql| sql.cpu_us) {
        let us = sql.cpu_us.unwrap_or(0.0);
        let statement = one_line(sql.text, 60);
        found = found.evidence("sql-cpu-time", format!("SQL {}: {} of CPU: {statement}", sql.name(), duration(us)));
    }
    Some(vec![
        found
            .recommend("Tune the statements at the top of SQL ordered by CPU Time; faster storage does not help", None),
    ])
}
