-- Statements over many jobs at once, for the short ways of enqueue, claim and settle.

-- name: add_jobs
-- in:   ?1 n, ?2 id, ?3 q, ?4 t, ?5 accepted_at, ?6 flow, ?7 revision, ?8 priority, ?9 max_attempts, ?10 state, ?11 band,
--       ?12 sequence, ?13 due_at, ?14 expires_at, ?15 size
-- cost: one row and three indexes per job
INSERT INTO job (n, id, q, t, lane, accepted_at, flow, revision, priority, max_attempts, state, band, sequence, attempt,
    crashes, fence, started, due_at, expires_at, claimed_at, cancel_requested, waiting_for, replays, ends, size, marks)
VALUES (?1, ?2, ?3, ?4, '', ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, 0, 0, 0, 0, ?13, ?14, 0, 0, 0, 0, 0, ?15, 0);

-- name: remembered
-- in:   ?1 ids (JSON)
-- out:  1 if a key absorbed one of them, or an edge leads to one
-- cost: two seeks per id
SELECT 1 FROM json_each(?1) AS known WHERE EXISTS (SELECT 1 FROM absorbed WHERE absorbed.id = known.value)
    OR EXISTS (SELECT 1 FROM edge WHERE edge.parent = known.value) LIMIT 1;

-- name: live
-- in:   ?1 ids (JSON)
-- out:  n, id, q, t, state, fence, session, marks, ends, line, attempt, claimed_at of those that are kept
-- cost: one row of an index and one head per id
SELECT n, id, q, t, state, fence, session, marks, ends, line, attempt, claimed_at FROM job
WHERE id IN (SELECT value FROM json_each(?1)) AND pruned_until IS NULL;

-- name: end_done
-- in:   ?1 n, ?2 now, ?3 bytes of the result, ?4 the mark of a result
-- cost: one row and two indexes per job
UPDATE job SET state = 4, reason = NULL, session = NULL, deadline = NULL, started = 1, finished_at = ?2,
    cancel_requested = 0, hold_key = NULL, held = NULL, ends = ends + 1, size = size + ?3, marks = marks | ?4
WHERE n = ?1;
