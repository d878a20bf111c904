-- Sessions: beats, ends, what becomes of their leases.

-- name: session_id
-- in:   ?1 s
-- out:  id
-- cost: one row
SELECT id FROM session WHERE s = ?1;

-- name: session
-- in:   ?1 id
-- out:  s, seen, ended_at, cause, started
-- cost: one row
SELECT s, seen, ended_at, cause, started FROM session WHERE id = ?1;

-- name: open
-- in:   ?1 id, ?2 info, ?3 ttl, ?4 opened_at, ?5 seen
-- out:  s
-- cost: one row
INSERT INTO session (id, info, ttl, opened_at, seen) VALUES (?1, ?2, ?3, ?4, ?5) RETURNING s;

-- name: beat
-- in:   ?1 s, ?2 seen, ?3 memory
-- cost: one row
UPDATE session SET seen = max(seen, ?2), memory = ?3 WHERE s = ?1;

-- name: flagged
-- in:   ?1 s, ?2 limit
-- out:  id, fence of leases that are to be cancelled
-- cost: one row per flagged lease
SELECT id, fence FROM job WHERE cancel_requested = 1 AND session = ?1 ORDER BY lease, n LIMIT ?2;

-- name: end
-- in:   ?1 s, ?2 ended_at, ?3 silent_for, ?4 cause, ?5 started
-- cost: one row
UPDATE session SET ended_at = ?2, silent_for = ?3, cause = ?4, started = ?5, replied = NULL WHERE s = ?1;

-- name: leases
-- in:   ?1 s, ?2 limit
-- out:  n of its leases
-- cost: `limit` rows
SELECT n FROM job WHERE session IS NOT NULL AND session = ?1 ORDER BY lease, n LIMIT ?2;

-- name: silent
-- in:   ?1 the liveness clock
-- out:  s, id, seen of live sessions that were silent for longer than their TTL
-- cost: one row per session
SELECT s, id, seen FROM session WHERE ended_at IS NULL AND seen + ttl < ?1 ORDER BY s;

-- name: ended_with_leases
-- in:   nothing
-- out:  s, cause, started of ended sessions that still have leases
-- cost: one row per ended session
SELECT s, cause, started FROM session WHERE ended_at IS NOT NULL
    AND EXISTS (SELECT 1 FROM job WHERE job.session IS NOT NULL AND job.session = session.s) ORDER BY s;

-- name: forgotten
-- in:   ?1 now less the time they are kept, ?2 limit
-- out:  s of ended sessions that can go
-- cost: `limit` rows
SELECT s FROM session WHERE ended_at IS NOT NULL AND ended_at <= ?1
    AND NOT EXISTS (SELECT 1 FROM job WHERE job.session IS NOT NULL AND job.session = session.s) LIMIT ?2;

-- name: forget
-- in:   ?1 s
-- cost: one row
DELETE FROM session WHERE s = ?1;

-- name: alive
-- in:   nothing
-- out:  how many sessions are alive
-- cost: one row per session
SELECT COUNT(*) FROM session WHERE ended_at IS NULL;

-- name: views
-- in:   ?1 the id before, ?2 limit
-- out:  s, id, info, opened_at, seen, memory, ended_at, silent_for, cause and the number of leases, by id
-- cost: `limit` rows and one index row per lease
SELECT s, id, info, opened_at, seen, memory, ended_at, silent_for, cause,
    (SELECT COUNT(*) FROM job WHERE job.session IS NOT NULL AND job.session = session.s)
FROM session WHERE id > ?1 ORDER BY id LIMIT ?2;

-- name: infos
-- in:   nothing
-- out:  info of live sessions
-- cost: one row per session
SELECT info FROM session WHERE ended_at IS NULL;
