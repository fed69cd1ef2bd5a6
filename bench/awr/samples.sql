-- Fills the repository with the session samples of 192 AWR snapshots: 50 active sessions, sampled every second for an hour each.
-- The 60 stored minutes of the first hour are copied to the others. Statements have the identifiers of awr.plan_stat, and the n-th
-- has a share of about 1/n. Variable first: the AWR snapshot before the 192.
\set ON_ERROR_STOP on
SET client_min_messages = warning;
INSERT INTO awr.word (word, last_day)
  SELECT unnest(ARRAY['client backend', 'active', 'pgbench', 'OTHER_GROUPS', '10.0.0.1', 'IO', 'LWLock', 'Lock', 'Client', 'DataFileRead', 'WALSync',
                      'WALWrite', 'BufferContent', 'transactionid', 'ClientWrite']), current_date
  ON CONFLICT (word) DO NOTHING;
CREATE TEMP TABLE event AS
  SELECT n, (SELECT id FROM awr.word WHERE word = t) AS type, (SELECT id FROM awr.word WHERE word = e) AS event
  FROM (VALUES (7, 'IO', 'DataFileRead'), (11, 'IO', 'WALSync'), (13, 'LWLock', 'WALWrite'), (14, 'LWLock', 'BufferContent'),
               (15, 'Lock', 'transactionid'), (16, 'Client', 'ClientWrite')) v (n, t, e);
CREATE TEMP TABLE statement AS
  SELECT row_number() OVER (ORDER BY query_id) AS n, query_id, min(plan_id) AS plan_id FROM awr.plan_stat WHERE query_id <> 0 GROUP BY 2;
SELECT setseed(0.5);
CREATE TEMP TABLE hour AS
  SELECT p.minute, p.ms, p.pid, e.type, e.event, s.query_id, s.plan_id
  FROM (SELECT minute, second * 1000 AS ms, 1000 + session AS pid, (random() * 16)::int AS n,
               floor((SELECT count(*) FROM statement) ^ random())::int AS statement
        FROM generate_series(0, 59) minute, generate_series(0, 59) second, generate_series(1, 50) session) p
       JOIN statement s ON s.n = p.statement
       LEFT JOIN LATERAL (SELECT * FROM event e WHERE e.n >= p.n AND p.n > 4 ORDER BY e.n LIMIT 1) e ON true;
CREATE TEMP TABLE chunk AS
  SELECT minute, array_agg(ms ORDER BY pid, ms) AS ms, array_agg(pid ORDER BY pid, ms) AS pid, array_agg(type ORDER BY pid, ms) AS type,
         array_agg(event ORDER BY pid, ms) AS event, array_agg(query_id ORDER BY pid, ms) AS query_id,
         array_agg(plan_id ORDER BY pid, ms) AS plan_id, count(*)::int AS n
  FROM hour GROUP BY 1;
SELECT format('SELECT awr.create_partitions(%L)', s.day)
  FROM (SELECT DISTINCT (end_time AT TIME ZONE 'UTC')::date AS day FROM awr.snapshot WHERE snap_id > :first) s \gexec
INSERT INTO awr.sample_chunk (snap_day, instance_id, begin_time, end_time, period_ms, ticks, lost, sample_ms, pid, session_ms, leader_pid,
    blocker_pid, database, role, application, client, backend_type, state, wait_event_type, wait_event, query_id, plan_hash, xact_age_us, query_age_us, temp_bytes, consumer_group, snap_id)
  SELECT (s.end_time AT TIME ZONE 'UTC')::date, 1, s.end_time - interval '1 hour' + (c.minute * 60 + 1) * interval '1 second',
         s.end_time - interval '1 hour' + (c.minute * 60 + 60) * interval '1 second', 1000, 60, 0, c.ms, c.pid,
         array_fill(1700000000000::bigint, ARRAY[n]), array_fill(0, ARRAY[n]),
         (SELECT array_agg(CASE WHEN e = (SELECT id FROM awr.word WHERE word = 'transactionid') THEN 1001 ELSE 0 END ORDER BY o) FROM unnest(c.event) WITH ORDINALITY u (e, o)),
         array_fill((SELECT oid FROM pg_database WHERE datname = current_database()), ARRAY[n]), array_fill(10::oid, ARRAY[n]),
         array_fill((SELECT id FROM awr.word WHERE word = 'pgbench'), ARRAY[n]), array_fill((SELECT id FROM awr.word WHERE word = '10.0.0.1'), ARRAY[n]),
         array_fill((SELECT id FROM awr.word WHERE word = 'client backend'), ARRAY[n]), array_fill((SELECT id FROM awr.word WHERE word = 'active'), ARRAY[n]),
         c.type, c.event, c.query_id, c.plan_id, array_fill(1000::bigint, ARRAY[n]), array_fill(1000::bigint, ARRAY[n]), array_fill(0::bigint, ARRAY[n]),
         array_fill((SELECT id FROM awr.word WHERE word = 'OTHER_GROUPS'), ARRAY[n]), s.snap_id
  FROM chunk c, awr.snapshot s WHERE s.snap_id > :first AND s.snap_id <= :first + 192;
ANALYZE awr.sample_chunk;
