-- Claim: due jobs, sessions' asks, and leases.

-- name: due
-- in:   ?1 q, ?2 now, ?3 limit
-- out:  due_at, sequence, n of scheduled jobs that are due, in that order
-- cost: `limit` rows of an index
SELECT due_at, sequence, n FROM job WHERE state = {scheduled} AND q = ?1 AND due_at <= ?2
ORDER BY due_at, sequence LIMIT ?3;

-- name: next_suspect_due
-- in:   ?1 q
-- out:  due_at of the first scheduled suspect
-- cost: one seek
SELECT due_at FROM job WHERE state = {scheduled} AND crashes >= {suspect_after} AND q = ?1 ORDER BY due_at LIMIT 1;

-- name: next_due
-- in:   ?1 q
-- out:  due_at of the first scheduled job
-- cost: one seek
SELECT due_at FROM job WHERE state = {scheduled} AND q = ?1 ORDER BY due_at LIMIT 1;

-- name: session
-- in:   ?1 id
-- out:  s, seq, replied, ended_at
-- cost: one row
SELECT s, seq, replied, ended_at FROM session WHERE id = ?1;

-- name: reply
-- in:   ?1 s, ?2 seq, ?3 replied
-- cost: one row
UPDATE session SET seq = ?2, replied = ?3 WHERE s = ?1;

-- name: ready_in_lane
-- in:   ?1 q, ?2 lane, ?3 and ?4 band and sequence of the job before, ?5 limit
-- out:  the columns of `records.Job` of the next ready jobs of a lane, suspects apart, in order
-- cost: `limit` rows of an index
SELECT {job_columns}
FROM job WHERE state = {ready} AND crashes < {suspect_after} AND q = ?1 AND lane = ?2 AND (band, sequence) > (?3, ?4)
ORDER BY band, sequence LIMIT ?5;

-- name: ready_in_band
-- in:   ?1 q, ?2 lane, ?3 not used, ?4 sequence of the job before, ?5 limit, ?6 band
-- out:  as ready_in_lane, of one band
-- cost: `limit` rows of an index
SELECT {job_columns}
FROM job WHERE state = {ready} AND crashes < {suspect_after} AND q = ?1 AND lane = ?2 AND band = ?6 AND sequence > ?4
ORDER BY sequence LIMIT ?5;

-- name: ring_lanes
-- in:   ?1 q, ?2 band, ?3 and ?4 due and name of the lane before, ?5 limit
-- out:  name, clock, due, then as lane, of the next lanes of a ring, in order
-- cost: `limit` rows of an index, and of lanes
SELECT lane.name, place.clock, place.due, lane.ready, lane.running, lane.paused, lane.level, lane.level_at, lane.level_per,
    lane.wake_at
FROM place CROSS JOIN lane ON lane.q = place.q AND lane.name = place.lane
WHERE place.due IS NOT NULL AND place.q = ?1 AND place.band = ?2 AND (place.due, place.lane) > (?3, ?4)
ORDER BY place.due, place.lane LIMIT ?5;

-- name: save_clock
-- in:   ?1 q, ?2 lane, ?3 band, ?4 clock, ?5 due
-- cost: one row
UPDATE place SET clock = ?4, due = ?5 WHERE q = ?1 AND lane = ?2 AND band = ?3;

-- name: set_time
-- in:   ?1 q, ?2 band, ?3 the highest clock at which a lane was claimed from
-- cost: one row
INSERT INTO ring (q, band, time) VALUES (?1, ?2, ?3) ON CONFLICT (q, band) DO UPDATE SET time = ?3;
