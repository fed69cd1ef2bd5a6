//! Sessions and session samples.

use super::{List, Measure, Service, Text};
use serde::Deserialize;
use std::collections::BTreeMap;

records! {
    Sessions {
        idle_in_transaction: List<SessionState>,
        longest_transactions: List<SessionState>,
        blocking: List<Blocking>,
        chains: List<Chain>,
    }

    SessionState {
        pid: Option<i64>,
        database: Text,
        #[serde(alias = "user")]
        role: Text,
        application: Text,
        client: Text,
        state: Text,
        query_id: Option<i64>,
        samples: Measure,
        /// The longest time seen in the state, or the greatest age of the transaction.
        #[serde(alias = "xact_age_us", alias = "age_us")]
        max_us: Measure,
    }

    Blocking {
        blocker_pid: Option<i64>,
        blocked_pid: Option<i64>,
        samples: Measure,
        locktype: Text,
        /// Without `blocked_pid`: the number of sessions whose samples are added up here.
        sessions: Measure,
        /// The statement that waited.
        query_id: Option<i64>,
        /// The last statement of the blocker, if known.
        blocker_query_id: Option<i64>,
        blocker_state: Text,
        blocker_application: Text,
        relation: Text,
    }

    /// Sessions that waited for locks, directly or through others, until one session ended its transaction.
    Chain {
        head_pid: Option<i64>,
        /// Number of different sessions that waited.
        sessions: Measure,
        samples: Measure,
    }

    /// Session samples.
    Ash {
        period_us: Measure,
        ticks: Measure,
        lost: Measure,
        slots: List<AshSlot>,
        by_event: List<AshActivity>,
        top_sql: List<AshActivity>,
        top_sessions: List<AshActivity>,
        by_service: List<Service>,
        /// Samples of foreground sessions by database and wait class.
        by_database: List<AshActivity>,
        /// Samples of sessions by consumer group and wait class.
        by_consumer_group: List<AshActivity>,
        blocking: List<Blocking>,
        chains: List<Chain>,
        idle_in_transaction: List<SessionState>,
    }

    AshSlot {
        time: Text,
        ticks: Measure,
        by_class: BTreeMap<String, f64>,
    }

    /// Samples of one combination of event, statement and session; absent dimensions are summed over.
    AshActivity {
        query_id: Option<i64>,
        plan_id: Option<i64>,
        event: Text,
        class: Text,
        foreground: Option<bool>,
        pid: Option<i64>,
        backend_type: Text,
        database: Text,
        #[serde(alias = "user")]
        role: Text,
        application: Text,
        consumer_group: Text,
        client: Text,
        state: Text,
        blocker_pid: Option<i64>,
        /// Number of different sessions.
        sessions: Measure,
        samples: Measure,
        time_us: Measure,
        stderr_us: Measure,
        /// The greatest size of the session's temporary files.
        temp_bytes: Measure,
    }

    /// Session samples of any interval, as `awr.ash_data` returns them; in a document of `awr.sql_data`, those of one statement, with
    /// `groups` by plan and event. Lists are ordered by samples, most first.
    History {
        samples: Measure,
        time_us: Measure,
        stderr_us: Measure,
        /// Time of the samples of foreground sessions.
        foreground_us: Measure,
        period_us: Measure,
        lost: Measure,
        /// The part of the interval in which the server took samples: its length, and its first and last moment.
        covered_us: Measure,
        covered_begin: Text,
        covered_end: Text,
        dimensions: List<Text>,
        filters: List<Filter>,
        /// Samples by the requested dimensions.
        groups: List<AshActivity>,
        events: List<AshActivity>,
        background_events: List<AshActivity>,
        services: List<AshActivity>,
        clients: List<AshActivity>,
        databases: List<AshActivity>,
        /// By consumer group and wait class.
        consumer_groups: List<AshActivity>,
        top_sql: List<AshActivity>,
        top_sessions: List<AshActivity>,
        blockers: List<AshActivity>,
        slots: List<HistorySlot>,
    }

    Filter {
        dimension: Text,
        value: Text,
    }

    /// A part of the interval. The slots cover the interval without gaps; the first and the last can be shorter.
    HistorySlot {
        time: Text,
        duration_us: Measure,
        samples: Measure,
        /// Microseconds by wait class.
        by_class: BTreeMap<String, f64>,
        /// The events with the most samples.
        events: List<AshActivity>,
    }
}
