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

-- name: lease_stretch
-- in:   ?1 first number, ?2 last number, ?3 q, ?4 priority, ?5 now, ?6 session, ?7 the number of the lease
-- cost: one row and its indexes per job, by half of what a list of them costs; all of them get the same number, so that
--       their own say who was first
UPDATE job NOT INDEXED SET state = 3, reason = NULL, attempt = attempt + 1, fence = MAX(fence + 1, ?5), claimed_at = ?5,
    session = ?6, lease = ?7
WHERE n BETWEEN ?1 AND ?2 AND state = 2 AND crashes < 2 AND q = ?3 AND lane = '' AND priority = ?4 AND deadline IS NULL;

-- name: ring_lanes
-- in:   ?1 q, ?2 band, ?3 limit, ?4 and ?5 due and name of the lane before
-- out:  name, clock, due, ready, running, paused, level, level_at, level_per, wake_at of the next lanes of a ring, in order
-- cost: `limit` rows of an index, and of lanes
SELECT lane.name, place.clock, place.due, lane.ready, lane.running, lane.paused, lane.level, lane.level_at, lane.level_per,
    lane.wake_at
FROM place CROSS JOIN lane ON lane.q = place.q AND lane.name = place.lane
WHERE place.due IS NOT NULL AND place.q = ?1 AND place.band = ?2 AND (place.due, place.lane) > (?4, ?5)
ORDER BY place.due, place.lane LIMIT ?3;

-- name: heads_of_band
-- in:   ?1 q, ?2 lane, ?3 limit, ?4 the job before (NULL: none), ?5 band
-- out:  as ready_jobs, of the next ready jobs of a lane in a band, in order
-- cost: `limit` rows of an index, a head and a body each
SELECT job.n, job.id, job.t, job.attempt, job.max_attempts, job.crashes, job.revision, job.priority, job.fence,
    job.due_at, job.expires_at, job.started, job.flow, job.marks, body.headers, body.tags, body.after, body.payload
FROM job CROSS JOIN body ON body.n = job.n
WHERE job.state = 2 AND job.crashes < 2 AND job.q = ?1 AND job.lane = ?2 AND job.band = ?5
    AND job.sequence > COALESCE((SELECT sequence FROM job AS last WHERE last.n = ?4), -1)
ORDER BY job.sequence LIMIT ?3;

-- name: heads_of_lane
-- in:   ?1 q, ?2 lane, ?3 limit, ?4 the job before (NULL: none)
-- out:  as heads_of_band, over all bands
-- cost: `limit` rows of an index, a head and a body each
SELECT job.n, job.id, job.t, job.attempt, job.max_attempts, job.crashes, job.revision, job.priority, job.fence,
    job.due_at, job.expires_at, job.started, job.flow, job.marks, body.headers, body.tags, body.after, body.payload
FROM job CROSS JOIN body ON body.n = job.n
WHERE job.state = 2 AND job.crashes < 2 AND job.q = ?1 AND job.lane = ?2
    AND (job.band, job.sequence) > (COALESCE((SELECT band FROM job AS last WHERE last.n = ?4), -9223372036854775808),
        COALESCE((SELECT sequence FROM job AS last WHERE last.n = ?4), -1))
ORDER BY job.band, job.sequence LIMIT ?3;

-- name: advance_places
-- in:   ?1 q, ?2 names of lanes (JSON), ?3 band, ?4 how far behind their due times their clocks are now, ?5 how much
--       later they are due (NULL: they have left the ring)
-- cost: one row per lane
UPDATE place SET clock = due + ?4, due = due + ?5
WHERE q = ?1 AND lane IN (SELECT value FROM json_each(?2)) AND band = ?3;

-- name: take_from_lanes
-- in:   ?1 q, ?2 names of lanes (JSON), ?3 how many jobs of each of them are claimed
-- cost: one row per lane
UPDATE lane SET ready = ready - ?3, running = running + ?3 WHERE q = ?1 AND name IN (SELECT value FROM json_each(?2));

-- name: set_time
-- in:   ?1 q, ?2 band, ?3 the highest clock at which a lane was claimed from
-- cost: one row
INSERT INTO ring (q, band, time) VALUES (?1, ?2, ?3) ON CONFLICT (q, band) DO UPDATE SET time = MAX(time, ?3);
