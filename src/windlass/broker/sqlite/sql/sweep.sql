-- Sweep: what only time brings about.

-- name: deadlines
-- in:   ?1 now, ?2 limit
-- out:  n of leases that ran out, first to last
-- cost: `limit` rows of an index
SELECT n FROM job WHERE deadline IS NOT NULL AND deadline <= ?1 ORDER BY deadline, n LIMIT ?2;

-- name: expired
-- in:   ?1 now, ?2 limit
-- out:  n of waiting jobs that were not started in time
-- cost: `limit` rows of an index
SELECT n FROM job WHERE expires_at IS NOT NULL AND started = 0 AND state IN ({blocked}, {scheduled}, {ready}) AND expires_at <= ?1
ORDER BY expires_at, n LIMIT ?2;

-- name: finished_before
-- in:   ?1 q, ?2 1 for dead letters, ?3 64 for jobs with a result, ?4 a time, ?5 and ?6 where to go on, ?7 limit
-- out:  finished_at, n of jobs that finished until then, oldest first
-- cost: `limit` rows of an index
SELECT finished_at, n FROM job WHERE finished_at IS NOT NULL AND pruned_until IS NULL AND q = ?1 AND (state = {dead}) = ?2
    AND (marks & {has_result}) = ?3 AND finished_at <= ?4 AND (finished_at, n) > (?5, ?6)
ORDER BY finished_at, n LIMIT ?7;

-- name: count_finished
-- in:   ?1 q
-- out:  how many finished jobs are kept, dead letters apart
-- cost: one index row per job; only for queues with a retention_count, which bounds it
SELECT COUNT(*) FROM job WHERE finished_at IS NOT NULL AND pruned_until IS NULL AND q = ?1 AND (state = {dead}) = 0
    AND (marks & {has_result}) IN (0, {has_result});

-- name: count_needed
-- in:   ?1 q
-- out:  how many of them an unfinished job needs
-- cost: one row per finished parent; only for queues with a retention_count that is exceeded
SELECT COUNT(*) FROM job WHERE (marks & {has_children}) = {has_children} AND finished_at IS NOT NULL AND pruned_until IS NULL AND state <> {dead}
    AND q = ?1 AND (EXISTS (SELECT 1 FROM fate WHERE fate.parent = job.id)
        OR EXISTS (SELECT 1 FROM edge JOIN job AS child ON child.n = edge.child
                   WHERE edge.parent = job.id AND child.state IN ({blocked}, {scheduled}, {ready}, {running})));

-- name: old_results
-- in:   ?1 q, ?2 a time, ?3 and ?4 where to go on, ?5 limit
-- out:  finished_at, n of results of jobs that finished until then, oldest first
-- cost: `limit` rows of an index
SELECT finished_at, n FROM result WHERE q = ?1 AND finished_at <= ?2 AND (finished_at, n) > (?3, ?4)
ORDER BY finished_at, n LIMIT ?5;

-- name: free_keys
-- in:   ?1 now, ?2 limit
-- out:  how many went
-- cost: `limit` rows
DELETE FROM unique_key WHERE (key, q, lane, t) IN (
    SELECT key, q, lane, t FROM unique_key WHERE until IS NOT NULL AND until <= ?1 LIMIT ?2)
RETURNING 1;

-- name: forgotten_jobs
-- in:   ?1 now, ?2 limit
-- out:  n of jobs whose end need not be remembered any longer
-- cost: `limit` rows
SELECT n FROM job WHERE pruned_until IS NOT NULL AND pruned_until <= ?1 ORDER BY pruned_until LIMIT ?2;

-- name: forget_absorbed
-- in:   ?1 now, ?2 limit
-- out:  how many went
-- cost: `limit` rows
DELETE FROM absorbed WHERE id IN (SELECT id FROM absorbed WHERE until <= ?1 LIMIT ?2) RETURNING 1;

-- name: any_absorbed
-- in:   nothing
-- out:  1 if a call is remembered
-- cost: one seek
SELECT 1 FROM absorbed LIMIT 1;

-- name: any_edge
-- in:   nothing
-- out:  1 if there is an edge
-- cost: one seek
SELECT 1 FROM edge LIMIT 1;

-- name: schedules_due
-- in:   ?1 now
-- out:  1 if a schedule is due
-- cost: one seek
SELECT 1 FROM schedule WHERE next_at IS NOT NULL AND paused = 0 AND next_at <= ?1 LIMIT 1;
