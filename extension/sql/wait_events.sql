-- Each wait event of the server is in tests/awr/wait_events.tsv, and awr.wait_class returns the class that the file states.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cellar;
\set content `cat "$PG_ABS_SRCDIR/wait_events.tsv" 2>/dev/null || cat "$PG_ABS_SRCDIR/../tests/awr/wait_events.tsv"`
CREATE TEMP TABLE stated AS
  SELECT f[1] AS type, f[2] AS event, f[3] AS versions, f[4] AS session_class, f[5] AS background_class
  FROM regexp_split_to_table(:'content', E'\n') WITH ORDINALITY l (line, n), regexp_split_to_array(line, E'\t') f WHERE n > 1;
SELECT count(*) > 300 AS has_events, count(*) - count(DISTINCT (type, event)) AS duplicates FROM stated;
SELECT type, event, awr.wait_class(type, event, true) AS session_class, awr.wait_class(type, event, false) AS background_class FROM stated
  WHERE (session_class, background_class) IS DISTINCT FROM (awr.wait_class(type, event, true), awr.wait_class(type, event, false));
SELECT DISTINCT session_class FROM stated
  WHERE session_class NOT IN ('User I/O', 'Commit', 'Concurrency', 'Application', 'Configuration', 'Administrative', 'Network', 'Scheduler', 'Idle', 'Other');

-- Versions as numbers: 15-17,19
CREATE TEMP VIEW stated_version AS
  SELECT type, event, v AS version FROM stated, regexp_split_to_table(versions, ',') r,
         generate_series(split_part(r, '-', 1)::int, coalesce(nullif(split_part(r, '-', 2), ''), r)::int) v;
-- Before 17, there is no view of all wait events; there, the events that processes wait for at present are compared.
SELECT current_setting('server_version_num')::int >= 170000 AS has_view \gset
\if :has_view
CREATE TEMP VIEW present AS SELECT type, name AS event FROM pg_wait_events WHERE type NOT IN ('Extension', 'InjectionPoint');
\else
CREATE TEMP VIEW present AS SELECT type, event FROM stated_version WHERE version = current_setting('server_version_num')::int / 10000;
\endif
SELECT type, event FROM present EXCEPT SELECT type, event FROM stated ORDER BY 1, 2;
-- The events that processes wait for at present
SELECT count(*) AS unknown FROM pg_stat_activity a WHERE wait_event_type NOT IN ('Extension', 'InjectionPoint')
  AND NOT EXISTS (SELECT FROM stated s WHERE (s.type, s.event) = (a.wait_event_type, a.wait_event));

-- Events of extensions
SELECT awr.wait_class('Extension', 'cell smart table scan', true), awr.wait_class('Extension', 'enq: KO - fast object checkpoint', true),
       awr.wait_class('Extension', 'SomeExtension', true), awr.wait_class('LWLock', 'some_extension', true), awr.wait_class(NULL, NULL, true);
