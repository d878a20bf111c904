-- The life of a job: deliveries, keys, edges, removal.

-- name: count_ready
-- in:   ?1 q
-- out:  how many jobs of the queue are ready
-- cost: one row per ready job; once in the life of a queue, when its first lane appears
SELECT (SELECT COUNT(*) FROM job WHERE state = {ready} AND crashes < {suspect_after} AND q = ?1)
    + (SELECT COUNT(*) FROM job WHERE state = {ready} AND crashes >= {suspect_after} AND q = ?1);

-- name: add_plain_bodies
-- in:   ?1 n, ?2 headers, ?3 tags, ?4 payload
-- cost: one row per job
INSERT INTO body (n, headers, tags, payload) VALUES (?1, ?2, ?3, ?4);

-- name: add_alike
-- in:   ?1 ids (JSON) of jobs whose bodies are there, ?2 the number of the first, ?3 how many they are, ?4 q, ?5 t,
--       ?6 accepted_at, ?7 flow, ?8 revision, ?9 priority, ?10 max_attempts, ?11 state, ?12 band, ?13 due_at,
--       ?14 expires_at
-- cost: one row and its indexes per job
INSERT INTO job (n, id, q, t, lane, accepted_at, flow, revision, priority, max_attempts, state, band, sequence, attempt,
    crashes, fence, started, due_at, expires_at, claimed_at, cancel_requested, waiting_for, replays, ends, size, marks)
SELECT body.n, new.value, ?4, ?5, '', ?6, ?7, ?8, ?9, ?10, ?11, ?12, body.n + ?3, 0, 0, 0, 0, ?13, ?14, 0, 0, 0, 0, 0,
    LENGTH(body.payload), 0
FROM json_each(?1) AS new CROSS JOIN body ON body.n = ?2 + new.key;

-- name: known_ids
-- in:   ?1 ids (JSON)
-- out:  1 if one of them is the id of a job, or of a call that a key absorbed
-- cost: two seeks per id
SELECT 1 FROM json_each(?1) AS new WHERE EXISTS (SELECT 1 FROM job WHERE job.id = new.value)
    OR EXISTS (SELECT 1 FROM absorbed WHERE absorbed.id = new.value) LIMIT 1;

-- name: plain_leases
-- in:   ?1 ids (JSON)
-- out:  n, id, q, t, lane, state, fence, attempt, session, claimed_at of jobs of which no other table knows
-- cost: one row per id
SELECT n, id, q, t, lane, state, fence, attempt, session, claimed_at FROM job
WHERE id IN (SELECT value FROM json_each(?1)) AND marks = 0 AND ends < {deliveries} AND line IS NULL;

-- name: end_done
-- in:   ?1 n, bytes of the result, marks afterwards, of each (JSON), ?2 now
-- cost: one row and two indexes per job
UPDATE job SET state = {done}, reason = NULL, session = NULL, deadline = NULL, started = 1, finished_at = ?2,
    cancel_requested = 0, hold_key = NULL, held = NULL, ends = ends + 1, size = size + (done.value ->> 1),
    marks = done.value ->> 2
FROM json_each(?1) AS done WHERE job.n = (done.value ->> 0);

-- name: cut_deliveries
-- in:   ?1 n, ?2 how many to keep
-- cost: as many rows
DELETE FROM delivery WHERE n = ?1 AND fence < (
    SELECT MIN(fence) FROM (SELECT fence FROM delivery WHERE n = ?1 ORDER BY fence DESC LIMIT ?2));

-- name: delivery
-- in:   ?1 n, ?2 fence
-- out:  record
-- cost: one row
SELECT record FROM delivery WHERE n = ?1 AND fence = ?2;

-- name: deliveries
-- in:   ?1 n
-- out:  fence, record, oldest first
-- cost: ten rows
SELECT fence, record FROM delivery WHERE n = ?1 ORDER BY fence;

-- name: drop_deliveries
-- in:   ?1 n, ?2 fence
-- cost: ten rows: all but the one of this fence
DELETE FROM delivery WHERE n = ?1 AND fence < ?2;

-- name: save_delivery
-- in:   ?1 n, ?2 fence, ?3 record
-- cost: one row
UPDATE delivery SET record = ?3 WHERE n = ?1 AND fence = ?2;

-- name: said
-- in:   ?1 n
-- out:  permille, message, error
-- cost: one row
SELECT permille, message, error FROM said WHERE n = ?1;

-- name: say_error
-- in:   ?1 n, ?2 error
-- cost: one row
INSERT INTO said (n, error) VALUES (?1, ?2) ON CONFLICT (n) DO UPDATE SET error = ?2;

-- name: say_progress
-- in:   ?1 n, ?2 permille, ?3 message
-- cost: one row
INSERT INTO said (n, permille, message) VALUES (?1, ?2, ?3)
ON CONFLICT (n) DO UPDATE SET permille = ?2, message = ?3;

-- name: memos
-- in:   ?1 n
-- out:  name, value, by name
-- cost: one row per memo, at most 1,000
SELECT name, value FROM memo WHERE n = ?1 ORDER BY name;

-- name: size_of_memos
-- in:   ?1 n, ?2 name
-- out:  how many memos of other names there are, and their bytes
-- cost: one row per memo, at most 100
SELECT COUNT(*), COALESCE(SUM(LENGTH(value)), 0) FROM memo WHERE n = ?1 AND name <> ?2;

-- name: save_memo
-- in:   ?1 n, ?2 name, ?3 value
-- cost: one row
INSERT INTO memo (n, name, value) VALUES (?1, ?2, ?3) ON CONFLICT (n, name) DO UPDATE SET value = ?3;

-- name: drop_memos
-- in:   ?1 n
-- cost: one row per memo
DELETE FROM memo WHERE n = ?1;

-- name: logs
-- in:   ?1 n
-- out:  lines, oldest first
-- cost: 100 rows
SELECT line FROM log WHERE n = ?1 ORDER BY i;

-- name: last_line
-- in:   ?1 n
-- out:  the number of the last line
-- cost: one seek
SELECT COALESCE(MAX(i), 0) FROM log WHERE n = ?1;

-- name: add_line
-- in:   ?1 n, ?2 number, ?3 line
-- cost: one row
INSERT INTO log (n, i, line) VALUES (?1, ?2, ?3);

-- name: cut_lines
-- in:   ?1 n, ?2 the last number to go
-- cost: one row per line that goes
DELETE FROM log WHERE n = ?1 AND i <= ?2;

-- name: save_result
-- in:   ?1 n, ?2 q, ?3 finished_at, ?4 value
-- cost: one row
INSERT INTO result (n, q, finished_at, value) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (n) DO UPDATE SET q = ?2, finished_at = ?3, value = ?4;

-- name: result
-- in:   ?1 n
-- out:  value
-- cost: one row
SELECT value FROM result WHERE n = ?1;

-- name: drop_result
-- in:   ?1 n
-- out:  its length
-- cost: one row
DELETE FROM result WHERE n = ?1 RETURNING LENGTH(value);

-- name: drop_said
-- in:   ?1 n
-- cost: one row
DELETE FROM said WHERE n = ?1;

-- name: drop_body
-- in:   ?1 n
-- cost: one row
DELETE FROM body WHERE n = ?1;

-- name: drop_all_deliveries
-- in:   ?1 n
-- cost: ten rows
DELETE FROM delivery WHERE n = ?1;

-- name: key
-- in:   ?1 key, ?2 q, ?3 lane, ?4 t
-- out:  holder, mode, window, accepted_at, follower, until
-- cost: one row
SELECT holder, mode, window, accepted_at, follower, until FROM unique_key
WHERE key = ?1 AND q = ?2 AND lane = ?3 AND t = ?4;

-- name: save_key
-- in:   ?1 key, ?2 q, ?3 lane, ?4 t, ?5 holder, ?6 mode, ?7 window, ?8 accepted_at, ?9 follower, ?10 until
-- cost: one row
INSERT INTO unique_key (key, q, lane, t, holder, mode, window, accepted_at, follower, until)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
ON CONFLICT (key, q, lane, t) DO UPDATE SET holder = ?5, mode = ?6, window = ?7, accepted_at = ?8, follower = ?9,
    until = ?10;

-- name: drop_key
-- in:   ?1 key, ?2 q, ?3 lane, ?4 t
-- cost: one row
DELETE FROM unique_key WHERE key = ?1 AND q = ?2 AND lane = ?3 AND t = ?4;

-- name: absorbed
-- in:   ?1 id
-- out:  status, of, until
-- cost: one row
SELECT status, of, until FROM absorbed WHERE id = ?1;

-- name: absorb
-- in:   ?1 id, ?2 status, ?3 of, ?4 until
-- cost: one row
INSERT INTO absorbed (id, status, of, until) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (id) DO UPDATE SET status = ?2, of = ?3, until = ?4;

-- name: drop_absorbed
-- in:   ?1 id
-- cost: one row
DELETE FROM absorbed WHERE id = ?1;

-- name: add_edge
-- in:   ?1 parent, ?2 child, ?3 on_failure, ?4 open
-- cost: one row
INSERT INTO edge (parent, child, on_failure, open) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (parent, child) DO UPDATE SET on_failure = ?3, open = ?4;

-- name: next_edge
-- in:   ?1 parent
-- out:  child, on_failure of an unresolved edge
-- cost: one seek
SELECT child, on_failure FROM edge INDEXED BY edge_open WHERE open = 1 AND parent = ?1 ORDER BY child LIMIT 1;

-- name: next_run_edge
-- in:   ?1 parent
-- out:  child, on_failure of an unresolved edge that acts on a dead parent
-- cost: one seek
SELECT child, on_failure FROM edge WHERE open = 1 AND on_failure = 'run' AND parent = ?1 ORDER BY child LIMIT 1;

-- name: close_edge
-- in:   ?1 parent, ?2 child
-- cost: one row
UPDATE edge SET open = 0 WHERE parent = ?1 AND child = ?2;

-- name: close_edges_of
-- in:   ?1 child
-- cost: one row per parent it waits for
UPDATE edge SET open = 0 WHERE child = ?1 AND open = 1;

-- name: drop_edges_to
-- in:   ?1 parent
-- cost: one row per dependent
DELETE FROM edge WHERE parent = ?1 AND open = 0;

-- name: drop_edges_of
-- in:   ?1 child
-- cost: one row per parent
DELETE FROM edge WHERE child = ?1;

-- name: open_parents
-- in:   ?1 child
-- out:  the parents it waits for
-- cost: one row per parent
SELECT parent FROM edge WHERE child = ?1 AND open = 1 ORDER BY parent;

-- name: dead_parent
-- in:   ?1 child
-- out:  1 if it waits for a dead parent
-- cost: one row per parent
SELECT 1 FROM edge JOIN job ON job.id = edge.parent
WHERE edge.child = ?1 AND edge.open = 1 AND job.state = {dead} AND job.pruned_until IS NULL LIMIT 1;

-- name: needed
-- in:   ?1 parent, ?2 1 if it is dead
-- out:  1 if an unfinished job needs it; those that wait for a dead parent do not
-- cost: one row per dependent
SELECT 1 FROM edge JOIN job ON job.n = edge.child
WHERE edge.parent = ?1 AND job.state IN ({blocked}, {scheduled}, {ready}, {running}) AND NOT (?2 = 1 AND edge.open = 1) LIMIT 1;

-- name: add_fate
-- in:   ?1 parent, ?2 state
-- cost: one row
INSERT INTO fate (parent, state) VALUES (?1, ?2);

-- name: fate_of
-- in:   ?1 parent
-- out:  1 if its dependents have yet to be told
-- cost: one seek
SELECT 1 FROM fate WHERE parent = ?1 LIMIT 1;

-- name: fates
-- in:   ?1 limit
-- out:  i, parent, state, oldest first
-- cost: `limit` rows
SELECT i, parent, state FROM fate ORDER BY i LIMIT ?1;

-- name: drop_fates
-- in:   ?1 the last number to go
-- cost: one row per fate
DELETE FROM fate WHERE i <= ?1;

-- name: any_fate
-- in:   nothing
-- out:  1 if there is one
-- cost: one seek
SELECT 1 FROM fate LIMIT 1;

-- name: error
-- in:   ?1 n
-- out:  its last error
-- cost: one row
SELECT error FROM said WHERE n = ?1;
