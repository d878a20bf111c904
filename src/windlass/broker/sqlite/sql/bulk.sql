-- Statements over many jobs at once, for the short ways of enqueue, claim and settle.

-- name: standing
-- in:   ?1 queue
-- out:  mark, number, epoch, absorbed, numbered_at of the namespace; number and time of the last job that is not
--       counted yet, if there is one; q, laned; nothing if there is no such queue
-- cost: two rows and a seek
SELECT namespace.mark, namespace.number, namespace.epoch, namespace.absorbed, namespace.numbered_at,
    job.n, job.accepted_at, queue.q, queue.laned
FROM queue CROSS JOIN namespace ON namespace.one = 1 LEFT JOIN job ON job.n > namespace.number WHERE queue.name = ?1
ORDER BY job.n DESC LIMIT 1;

-- name: add_jobs
-- in:   ?1 n, ?2 id, ?3 q, ?4 t, ?5 accepted_at, ?6 flow, ?7 revision, ?8 priority, ?9 max_attempts, ?10 state, ?11 band,
--       ?12 due_at, ?13 expires_at, ?14 sequence, ?15 size
-- cost: one row and two indexes per job
INSERT INTO job (n, id, q, t, lane, accepted_at, flow, revision, priority, max_attempts, state, band, sequence, attempt,
    crashes, fence, started, due_at, expires_at, claimed_at, cancel_requested, waiting_for, replays, ends, size, marks)
VALUES (?1, ?2, ?3, ?4, '', ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?14, 0, 0, 0, 0, ?12, ?13, 0, 0, 0, 0, 0, ?15, 0);

-- name: add_bodies
-- in:   ?1 n, ?2 headers, ?3 tags, ?4 payload
-- cost: one row per job
INSERT INTO body (n, headers, tags, payload) VALUES (?1, ?2, ?3, ?4);

-- name: add_alike
-- in:   ?1 ids (JSON) of jobs whose bodies are there, ?2 the number of the first, ?3 q, ?4 t, ?5 accepted_at, ?6 flow,
--       ?7 revision, ?8 priority, ?9 max_attempts, ?10 state, ?11 band, ?12 due_at, ?13 expires_at
-- cost: one row and two indexes per job, by half of what add_jobs takes
INSERT INTO job (n, id, q, t, lane, accepted_at, flow, revision, priority, max_attempts, state, band, sequence, attempt,
    crashes, fence, started, due_at, expires_at, claimed_at, cancel_requested, waiting_for, replays, ends, size, marks)
SELECT body.n, new.value, ?3, ?4, '', ?5, ?6, ?7, ?8, ?9, ?10, ?11, body.n + 1, 0, 0, 0, 0, ?12, ?13, 0, 0, 0, 0, 0,
    LENGTH(body.payload), 0
FROM json_each(?1) AS new CROSS JOIN body ON body.n = ?2 + 2 * new.key;

-- name: remembered
-- in:   ?1 ids (JSON)
-- out:  1 if a key absorbed one of them
-- cost: a seek per id
SELECT 1 FROM json_each(?1) AS known CROSS JOIN absorbed ON absorbed.id = known.value LIMIT 1;

-- name: end_done
-- in:   ?1 fences by the numbers of jobs (JSON), ?2 now
-- cost: one row and two indexes per job; a lease that is not live, or of which other tables know, is left alone
UPDATE job SET state = 4, reason = NULL, session = NULL, deadline = NULL, started = 1, finished_at = ?2,
    cancel_requested = 0, hold_key = NULL, held = NULL, ends = ends + 1
FROM json_each(?1) AS ended WHERE job.n = CAST(ended.key AS INTEGER) AND job.fence = ended.value
    AND job.state = 3 AND job.marks = 0 AND job.ends < 10 AND job.line IS NULL;

-- name: end_alike
-- in:   ?1 numbers of jobs (JSON), ?2 the fence of all of them, ?3 now
-- cost: as end_done, less a fifth
UPDATE job SET state = 4, reason = NULL, session = NULL, deadline = NULL, started = 1, finished_at = ?3,
    cancel_requested = 0, hold_key = NULL, held = NULL, ends = ends + 1
WHERE n IN (SELECT value FROM json_each(?1)) AND fence = ?2 AND state = 3 AND marks = 0 AND ends < 10 AND line IS NULL;

-- name: end_stretch
-- in:   ?1 first number, ?2 last number, ?3 the number of the lease, ?4 fence, ?5 now
-- cost: one row and two indexes per job; what is not as a claim has left it is left alone
UPDATE job NOT INDEXED SET state = 4, session = NULL, started = 1, finished_at = ?5, ends = ends + 1
WHERE n BETWEEN ?1 AND ?2 AND lease = ?3 AND fence = ?4 AND state = 3 AND marks = 0 AND ends < 10 AND line IS NULL
    AND reason IS NULL AND deadline IS NULL AND cancel_requested = 0 AND hold_key IS NULL AND held IS NULL;

-- name: end_done_with_result
-- in:   ?1 number, fence, bytes of the result of each (JSON), ?2 now
-- cost: one row and two indexes per job; a lease that is not live, or of which other tables know, is left alone
UPDATE job SET state = 4, reason = NULL, session = NULL, deadline = NULL, started = 1, finished_at = ?2,
    cancel_requested = 0, hold_key = NULL, held = NULL, ends = ends + 1, size = size + (ended.value ->> 2), marks = 64
FROM json_each(?1) AS ended WHERE job.n = (ended.value ->> 0) AND job.fence = (ended.value ->> 1)
    AND job.state = 3 AND job.marks = 0 AND job.ends < 10 AND job.line IS NULL;
