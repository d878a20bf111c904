-- What every step reads and writes: the namespace, queues, lanes, tasks, heads and bodies of jobs, counts, events.

-- name: namespace
-- in:   nothing
-- out:  mark, live, swept_at, left_work, number, version, epoch, bytes, event_end, edges, absorbed
-- cost: one row
SELECT mark, live, swept_at, left_work, number, version, epoch, bytes, event_end, edges, absorbed
FROM namespace WHERE one = 1;

-- name: save_namespace
-- in:   the eleven of the namespace, in the same order
-- cost: one row
UPDATE namespace SET mark = ?1, live = ?2, swept_at = ?3, left_work = ?4, number = ?5, version = ?6, epoch = ?7,
    bytes = ?8, event_end = ?9, edges = ?10, absorbed = ?11
WHERE one = 1;

-- name: queue_by_name
-- in:   ?1 name
-- out:  q, name, laned, paused, running, level, level_at, level_per
-- cost: one row
SELECT q, name, laned, paused, running, level, level_at, level_per FROM queue WHERE name = ?1;

-- name: queue_by_number
-- in:   ?1 q
-- out:  as queue_by_name
-- cost: one row
SELECT q, name, laned, paused, running, level, level_at, level_per FROM queue WHERE q = ?1;

-- name: queues
-- in:   nothing
-- out:  as queue_by_name, of every queue, in the order of declaration
-- cost: one row per queue
SELECT q, name, laned, paused, running, level, level_at, level_per FROM queue ORDER BY q;

-- name: queue_names
-- in:   nothing
-- out:  names of all queues
-- cost: one row per queue
SELECT name FROM queue ORDER BY name;

-- name: add_queue
-- in:   ?1 name
-- out:  q
-- cost: one row
INSERT INTO queue (name) VALUES (?1) RETURNING q;

-- name: save_queue
-- in:   ?1 q, ?2 laned, ?3 paused, ?4 running, ?5 level, ?6 level_at, ?7 level_per
-- cost: one row
UPDATE queue SET laned = ?2, paused = ?3, running = ?4, level = ?5, level_at = ?6, level_per = ?7 WHERE q = ?1;

-- name: document
-- in:   ?1 kind, ?2 name, ?3 lane
-- out:  declared, override
-- cost: one row
SELECT declared, override FROM document WHERE kind = ?1 AND name = ?2 AND lane = ?3;

-- name: lane
-- in:   ?1 q, ?2 name
-- out:  ready, running, paused, level, level_at, level_per, wake_at
-- cost: one row
SELECT ready, running, paused, level, level_at, level_per, wake_at FROM lane WHERE q = ?1 AND name = ?2;

-- name: save_lane
-- in:   ?1 q, ?2 name, ?3 ready, ?4 running, ?5 paused, ?6 level, ?7 level_at, ?8 level_per, ?9 wake_at
-- cost: one row
INSERT INTO lane (q, name, ready, running, paused, level, level_at, level_per, wake_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (q, name) DO UPDATE SET ready = ?3, running = ?4, paused = ?5, level = ?6, level_at = ?7,
    level_per = ?8, wake_at = ?9;

-- name: task_by_name
-- in:   ?1 name
-- out:  t, timed
-- cost: one row
SELECT t, timed FROM task WHERE name = ?1;

-- name: task_by_number
-- in:   ?1 t
-- out:  name, timed
-- cost: one row
SELECT name, timed FROM task WHERE t = ?1;

-- name: add_task
-- in:   ?1 name
-- out:  t
-- cost: one row
INSERT INTO task (name) VALUES (?1) RETURNING t;

-- name: time_task
-- in:   ?1 t
-- cost: one row
UPDATE task SET timed = 1 WHERE t = ?1;

-- name: jobs_by_id
-- in:   ?1 ids (JSON)
-- out:  the columns of `records.Job`, of those that are there
-- cost: one row per id
SELECT {job_columns}
FROM job WHERE id IN (SELECT value FROM json_each(?1));

-- name: job_by_number
-- in:   ?1 n
-- out:  the columns of `records.Job`
-- cost: one row
SELECT {job_columns}
FROM job WHERE n = ?1;

-- name: add_job
-- in:   the columns of `records.Job`
-- cost: one row and its indexes
INSERT INTO job (n, id, q, t, lane, accepted_at, parent, flow, revision, priority, max_attempts, state, reason, band,
    sequence, line, attempt, crashes, fence, started, due_at, expires_at, session, lease, deadline, claimed_at, finished_at,
    cancel_requested, hold_key, held, waiting_for, replays, ends, size, marks, pruned_until)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23,
    ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34, ?35, ?36);

-- name: save_job
-- in:   ?1 to ?28 the columns that may change, ?29 n
-- cost: one row and its indexes
UPDATE job SET revision = ?1, priority = ?2, max_attempts = ?3, state = ?4, reason = ?5, band = ?6, sequence = ?7,
    line = ?8, attempt = ?9, crashes = ?10, fence = ?11, started = ?12, due_at = ?13, expires_at = ?14, session = ?15,
    lease = ?16, deadline = ?17, claimed_at = ?18, finished_at = ?19, cancel_requested = ?20, hold_key = ?21, held =
    ?22, waiting_for = ?23, replays = ?24, ends = ?25, size = ?26, marks = ?27, pruned_until = ?28
WHERE n = ?29;

-- name: start_job
-- in:   ?1 state, ?2 attempt, ?3 fence, ?4 session, ?5 lease, ?6 deadline, ?7 claimed_at, ?8 n
-- cost: one row and its indexes
UPDATE job SET state = ?1, reason = NULL, attempt = ?2, fence = ?3, session = ?4, lease = ?5, deadline = ?6, claimed_at = ?7
WHERE n = ?8;

-- name: remove_job
-- in:   ?1 n
-- cost: one row and its indexes
DELETE FROM job WHERE n = ?1;

-- name: body
-- in:   ?1 n
-- out:  key, mode, window, headers, tags, after, payload
-- cost: one row
SELECT key, mode, window, headers, tags, after, payload FROM body WHERE n = ?1;

-- name: bodies
-- in:   ?1 numbers (JSON)
-- out:  n, then as body
-- cost: one row per number
SELECT n, key, mode, window, headers, tags, after, payload FROM body WHERE n IN (SELECT value FROM json_each(?1));

-- name: bare_body
-- in:   ?1 n
-- out:  key, mode, window, headers, tags, after: without the payload
-- cost: one row, no overflow pages
SELECT key, mode, window, headers, tags, after FROM body WHERE n = ?1;

-- name: save_body
-- in:   ?1 n, ?2 key, ?3 mode, ?4 window, ?5 headers, ?6 tags, ?7 after, ?8 payload
-- cost: one row
INSERT INTO body (n, key, mode, window, headers, tags, after, payload)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (n) DO UPDATE SET key = ?2, mode = ?3, window = ?4, headers = ?5, tags = ?6, after = ?7, payload = ?8;

-- name: add_delivery
-- in:   ?1 n, ?2 fence, ?3 record
-- cost: one row
INSERT INTO delivery (n, fence, record) VALUES (?1, ?2, ?3);

-- name: session_by_number
-- in:   ?1 s
-- out:  id, ended_at
-- cost: one row
SELECT id, ended_at FROM session WHERE s = ?1;

-- name: tally
-- in:   ?1 q, ?2 t, ?3 state, ?4 by
-- cost: one row
INSERT INTO tally (q, t, state, count) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (q, t, state) DO UPDATE SET count = count + ?4;

-- name: tally_of_queue
-- in:   ?1 q, ?2 state
-- out:  how many jobs of the queue are in the state
-- cost: one row per task of the queue and state
SELECT COALESCE(SUM(count), 0) FROM tally WHERE q = ?1 AND state = ?2;

-- name: add_event
-- in:   ?1 number, ?2 record
-- cost: one row
INSERT INTO event (i, record) VALUES (?1, ?2);

-- name: cap_events
-- in:   ?1 the oldest number to keep
-- cost: one row per event that goes
DELETE FROM event WHERE i < ?1;
