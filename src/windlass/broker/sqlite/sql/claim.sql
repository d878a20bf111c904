-- Claim: due jobs, sessions' asks, and leases.

-- name: due
-- in:   ?1 q, ?2 now, ?3 limit
-- out:  due_at, sequence, n of scheduled jobs that are due, in that order
-- cost: `limit` rows of an index
SELECT due_at, sequence, n FROM job WHERE state = 1 AND q = ?1 AND due_at <= ?2
ORDER BY due_at, sequence LIMIT ?3;

-- name: next_suspect_due
-- in:   ?1 q
-- out:  due_at of the first scheduled suspect
-- cost: one seek
SELECT due_at FROM job WHERE state = 1 AND crashes >= 2 AND q = ?1 ORDER BY due_at LIMIT 1;

-- name: next_due
-- in:   ?1 q
-- out:  due_at of the first scheduled job
-- cost: one seek
SELECT due_at FROM job WHERE state = 1 AND q = ?1 ORDER BY due_at LIMIT 1;

-- name: session
-- in:   ?1 id
-- out:  s, seq, replied, ended_at
-- cost: one row
SELECT s, seq, replied, ended_at FROM session WHERE id = ?1;

-- name: reply
-- in:   ?1 s, ?2 seq, ?3 replied
-- cost: one row
UPDATE session SET seq = ?2, replied = ?3 WHERE s = ?1;

-- name: ready_jobs
-- in:   ?1 q, ?2 limit
-- out:  n, id, t, attempt, max_attempts, crashes, revision, priority, fence, due_at, expires_at, started, flow, marks,
--       headers, tags, after, payload of the first ready jobs of a queue without lanes, in order
-- cost: `limit` rows of an index, a head and a body each
SELECT job.n, job.id, job.t, job.attempt, job.max_attempts, job.crashes, job.revision, job.priority, job.fence,
    job.due_at, job.expires_at, job.started, job.flow, job.marks, body.headers, body.tags, body.after, body.payload
FROM job JOIN body ON body.n = job.n
WHERE job.state = 2 AND job.crashes < 2 AND job.q = ?1 AND job.lane = ''
ORDER BY job.band, job.sequence LIMIT ?2;

-- name: lease_jobs
-- in:   ?1 numbers (JSON), ?2 now, ?3 session, ?4 deadline, ?5 the number of the first lease
-- cost: one row and its indexes per job
UPDATE job SET state = 3, reason = NULL, attempt = attempt + 1, fence = MAX(fence + 1, ?2), claimed_at = ?2, session = ?3,
    deadline = ?4, lease = ?5 + taken.key
FROM json_each(?1) AS taken WHERE job.n = taken.value;
