-- Ready jobs whose place tells when they are due need no index for it.
--
-- in:   layout 2
-- out:  `job_late` instead of `job_waiting`; `namespace.numbered_at`
-- cost: one look at every job
--
-- A job that is ready from the start has the number behind its own as its sequence, and no other has unless it is due
-- as late as any before it (`Writing.place_number`). So of those the first of a band is the oldest, and what stands
-- before it is older still: `Counts.oldest` looks at the first of every band. All others came late to their places
-- (delayed, retried, unblocked), or kept them over a retry (`line`): they are in `job_late`. That is a page less to
-- write for a plain job, once when it comes and once when it is claimed.
ALTER TABLE namespace ADD COLUMN numbered_at INTEGER NOT NULL DEFAULT 0;   -- the latest time at which a number was given
UPDATE namespace SET numbered_at = COALESCE((SELECT MAX(due_at) FROM job WHERE state IN (2, 3)), 0);
DROP INDEX job_waiting;
CREATE INDEX job_late ON job (q, due_at) WHERE state = 2 AND (sequence <> n + 1 OR line IS NOT NULL);
