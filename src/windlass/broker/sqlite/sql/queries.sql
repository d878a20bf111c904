-- Reads: jobs, listings, counts, lanes, events, what is ahead of a job.

-- name: page
-- in:   ?1 the number before, ?2 rows
-- out:  n of kept jobs, newest first
-- cost: `rows` rows of the table
SELECT n FROM job WHERE n < ?1 AND pruned_until IS NULL ORDER BY n DESC LIMIT ?2;

-- name: page_of_dead
-- in:   ?1 the number before, ?2 rows
-- out:  n of dead letters, newest first
-- cost: `rows` rows of an index
SELECT n FROM job WHERE state = {dead} AND pruned_until IS NULL AND n < ?1 ORDER BY n DESC LIMIT ?2;

-- name: page_of_flow
-- in:   ?1 the number before, ?2 rows, ?3 flow
-- out:  n of the kept jobs of a flow, newest first
-- cost: `rows` rows of an index
SELECT n FROM job WHERE flow <> '' AND flow = ?3 AND n < ?1 AND pruned_until IS NULL ORDER BY n DESC LIMIT ?2;

-- name: unfinished_flows
-- in:   ?1 the flow before, ?2 limit
-- out:  flow, moving, held, dead; by name
-- cost: five seeks per flow, whatever the number of its jobs
WITH RECURSIVE unfinished (flow) AS (
    SELECT (SELECT flow FROM job WHERE flow <> '' AND state < {done} AND flow > ?1 ORDER BY flow LIMIT 1)
    UNION ALL
    SELECT (SELECT job.flow FROM job WHERE job.flow <> '' AND job.state < {done} AND job.flow > unfinished.flow ORDER BY job.flow LIMIT 1)
    FROM unfinished WHERE unfinished.flow IS NOT NULL LIMIT ?2)
SELECT flow,
    EXISTS (SELECT 1 FROM job WHERE job.flow = unfinished.flow AND job.flow <> '' AND state < {done} AND state >= {ready})
    OR EXISTS (SELECT 1 FROM job WHERE job.flow = unfinished.flow AND job.flow <> '' AND state < {done} AND state = {scheduled}
               AND hold_key IS NULL),
    EXISTS (SELECT 1 FROM job WHERE job.flow = unfinished.flow AND job.flow <> '' AND state < {done} AND state = {scheduled}
            AND hold_key IS NOT NULL),
    EXISTS (SELECT 1 FROM job WHERE job.flow = unfinished.flow AND job.flow <> '' AND state = {dead} AND pruned_until IS NULL)
FROM unfinished WHERE flow IS NOT NULL;

-- name: tallies
-- in:   nothing
-- out:  queue, task, state, count
-- cost: one row per queue, task and state
SELECT queue.name, task.name, tally.state, tally.count FROM tally
JOIN queue ON queue.q = tally.q JOIN task ON task.t = tally.t WHERE tally.count <> 0;

-- name: oldest
-- in:   ?1 q
-- out:  due_at of the ready job that has been due for longest
-- cost: one seek
SELECT due_at FROM job WHERE state = {ready} AND q = ?1 ORDER BY due_at, sequence LIMIT 1;

-- name: lane_names
-- in:   ?1 q, ?2 queue, ?3 the name before (NULL: none), ?4 limit
-- out:  names of lanes with ready or running jobs, settings, or a pause
-- cost: one row per lane
SELECT name FROM lane WHERE q = ?1 AND (?3 IS NULL OR name > ?3) AND (ready > 0 OR running > 0 OR paused = 1)
UNION SELECT lane FROM document WHERE kind = 'lane' AND name = ?2 AND (?3 IS NULL OR lane > ?3)
ORDER BY 1 LIMIT ?4;

-- name: lag
-- in:   ?1 q, ?2 lane
-- out:  how far its clocks are ahead of their rings', the most
-- cost: one row per band of the lane
SELECT COALESCE(MAX(MAX(0, place.clock - COALESCE(ring.time, 0))), 0) FROM place
LEFT JOIN ring ON ring.q = place.q AND ring.band = place.band WHERE place.q = ?1 AND place.lane = ?2;

-- name: ahead_of_suspect
-- in:   ?1 q, ?2 lane, ?3 sequence, ?4 limit
-- out:  suspects of its lane before it, up to the limit
-- cost: one row per suspect of the queue
SELECT COUNT(*) FROM (SELECT 1 FROM job WHERE state = {ready} AND crashes >= {suspect_after} AND q = ?1 AND lane = ?2 AND sequence < ?3
    LIMIT ?4);

-- name: ahead_in_line
-- in:   ?1 q, ?2 lane, ?3 its place, ?4 limit
-- out:  ready jobs of its lane before it, up to the limit
-- cost: one row of an index per unfinished job before it
SELECT COUNT(*) FROM (SELECT 1 FROM job WHERE line IS NOT NULL AND q = ?1 AND lane = ?2 AND line < ?3 AND state = {ready}
    LIMIT ?4);

-- name: ahead_in_lane
-- in:   ?1 q, ?2 lane, ?3 band, ?4 sequence, ?5 limit
-- out:  ready jobs of its lane before it, up to the limit
-- cost: `limit` rows of an index
SELECT COUNT(*) FROM (SELECT 1 FROM job WHERE state = {ready} AND crashes < {suspect_after} AND q = ?1 AND lane = ?2
    AND (band, sequence) < (?3, ?4) LIMIT ?5);

-- name: oldest_event
-- in:   nothing
-- out:  the number of the oldest event that is kept
-- cost: one seek
SELECT MIN(i) FROM event;

-- name: events
-- in:   ?1 the first number, ?2 limit
-- out:  i, record
-- cost: `limit` rows
SELECT i, record FROM event WHERE i >= ?1 ORDER BY i LIMIT ?2;

-- name: ended
-- in:   ?1 ids (JSON)
-- out:  id, state, reason, n, marks, pruned_until of those that are finished
-- cost: one row of an index and one head per id
SELECT id, state, reason, n, marks, pruned_until FROM job
WHERE id IN (SELECT value FROM json_each(?1)) AND state IN ({done}, {dead}, {cancelled});
