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
