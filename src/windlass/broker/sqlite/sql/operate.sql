-- What operators do: purges and holds.

-- name: blocked
-- in:   ?1 q, ?2 limit
-- out:  n of blocked jobs, oldest first
-- cost: `limit` rows of an index
SELECT n FROM job WHERE state = {blocked} AND q = ?1 ORDER BY n LIMIT ?2;

-- name: scheduled
-- in:   ?1 q, ?2 limit
-- out:  n of scheduled jobs, in order of their due times
-- cost: `limit` rows of an index
SELECT n FROM job WHERE state = {scheduled} AND q = ?1 ORDER BY due_at, sequence LIMIT ?2;

-- name: ready
-- in:   ?1 q, ?2 limit
-- out:  n of ready jobs, in order of their due times
-- cost: `limit` rows of an index
SELECT n FROM job WHERE state = {ready} AND q = ?1 ORDER BY due_at, sequence LIMIT ?2;

-- name: finished
-- in:   ?1 q, ?2 limit, ?3 state
-- out:  n of finished jobs that nobody needs, of dead letters all
-- cost: one row of an index per job of the queue that is kept, in the worst case
SELECT n FROM job WHERE finished_at IS NOT NULL AND pruned_until IS NULL AND q = ?1 AND (state = {dead}) = (?3 = {dead})
    AND (marks & {has_result}) IN (0, {has_result}) AND state = ?3
    AND (?3 = {dead} OR marks & {has_children} = 0 OR NOT (
        EXISTS (SELECT 1 FROM fate WHERE fate.parent = job.id)
        OR EXISTS (SELECT 1 FROM edge JOIN job AS child ON child.n = edge.child
                   WHERE edge.parent = job.id AND child.state IN ({blocked}, {scheduled}, {ready}, {running}))))
LIMIT ?2;

-- name: held
-- in:   ?1 hold key, ?2 limit
-- out:  n of held jobs of this key, first due first
-- cost: `limit` rows of an index
SELECT n FROM job WHERE hold_key IS NOT NULL AND state = {scheduled} AND hold_key = ?1 ORDER BY due_at, sequence LIMIT ?2;
