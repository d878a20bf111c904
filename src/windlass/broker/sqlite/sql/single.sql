-- One plain job at a time, and what came so.

-- name: standing
-- in:   ?1 queue
-- out:  mark, number, epoch, absorbed, numbered_at of the namespace; q, laned; nothing if there is no such queue
-- cost: two rows
SELECT namespace.mark, namespace.number, namespace.epoch, namespace.absorbed, namespace.numbered_at, queue.q, queue.laned
FROM queue CROSS JOIN namespace ON namespace.one = 1 WHERE queue.name = ?1;

-- name: unfiled
-- in:   ?1 a number, not below the namespace's last one
-- out:  n, head of the jobs behind it, none of which is in `job`
-- cost: one row each
SELECT n, head FROM body WHERE n > ?1 ORDER BY n;

-- name: known
-- in:   ?1 id
-- out:  1 if there is such a job
-- cost: a seek
SELECT 1 FROM job WHERE id = ?1;

-- name: add
-- in:   ?1 n, ?2 headers, ?3 tags, ?4 payload, ?5 head
-- cost: one row
INSERT INTO body (n, headers, tags, payload, head) VALUES (?1, ?2, ?3, ?4, ?5);
