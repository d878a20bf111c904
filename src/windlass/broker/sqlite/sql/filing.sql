-- Filing: where waiting jobs stand, rings of lanes, who is next.

-- name: has_ready
-- in:   ?1 q, ?2 lane
-- out:  1 if the lane has a ready job that is no suspect
-- cost: one seek
SELECT 1 FROM job WHERE state = {ready} AND crashes < {suspect_after} AND q = ?1 AND lane = ?2 LIMIT 1;

-- name: next_band
-- in:   ?1 q, ?2 lane, ?3 the band before (NULL: none)
-- out:  the next band in which the lane has a ready job
-- cost: one seek
SELECT band FROM job WHERE state = {ready} AND crashes < {suspect_after} AND q = ?1 AND lane = ?2
    AND band > COALESCE(?3, -9223372036854775808)
ORDER BY band LIMIT 1;

-- name: head_of_line
-- in:   ?1 q, ?2 lane
-- out:  n of the first unfinished job of a lane in sequence
-- cost: one seek
SELECT n FROM job WHERE line IS NOT NULL AND q = ?1 AND lane = ?2 ORDER BY line LIMIT 1;

-- name: suspects
-- in:   ?1 q
-- out:  n, lane of its suspects, first in first out
-- cost: one row per suspect, at most 1,000
SELECT n, lane FROM job WHERE state = {ready} AND crashes >= {suspect_after} AND q = ?1 ORDER BY sequence LIMIT 1000;

-- name: count_suspects
-- in:   ?1 q, ?2 limit
-- out:  how many suspects wait, up to the limit
-- cost: one row per suspect, at most `limit`
SELECT COUNT(*) FROM (SELECT 1 FROM job WHERE state = {ready} AND crashes >= {suspect_after} AND q = ?1 LIMIT ?2);

-- name: next_ring
-- in:   ?1 q, ?2 the band before (NULL: none)
-- out:  the next band whose ring has a lane
-- cost: one seek
SELECT band FROM place WHERE due IS NOT NULL AND q = ?1 AND band > COALESCE(?2, -9223372036854775808)
ORDER BY band LIMIT 1;

-- name: places
-- in:   ?1 q, ?2 lane
-- out:  band, clock, due of the lane in each ring that knows it; due is NULL where it is not in the ring
-- cost: one row per band of the lane
SELECT band, clock, due FROM place WHERE q = ?1 AND lane = ?2;

-- name: ring_time
-- in:   ?1 q, ?2 band
-- out:  the highest clock at which a lane of the ring was claimed from
-- cost: one row
SELECT time FROM ring WHERE q = ?1 AND band = ?2;

-- name: save_place
-- in:   ?1 q, ?2 lane, ?3 band, ?4 clock, ?5 due
-- cost: one row
INSERT INTO place (q, lane, band, clock, due) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (q, lane, band) DO UPDATE SET clock = ?4, due = ?5;

-- name: fill_ring
-- in:   ?1 q, ?2 band
-- cost: one row, if the ring was empty: a lane has entered it
UPDATE ring SET empty_since = NULL WHERE q = ?1 AND band = ?2 AND empty_since IS NOT NULL;

-- name: empty_ring
-- in:   ?1 q, ?2 band, ?3 now
-- cost: one row, if no lane is left in the ring
INSERT INTO ring (q, band, time, empty_since) SELECT ?1, ?2, 0, ?3
WHERE NOT EXISTS (SELECT 1 FROM place WHERE due IS NOT NULL AND q = ?1 AND band = ?2)
ON CONFLICT (q, band) DO UPDATE SET empty_since = ?3;

-- name: empty_rings
-- in:   ?1 q, ?2 a time
-- out:  bands of rings that have been empty since then
-- cost: one row per ring of the queue
SELECT band FROM ring WHERE q = ?1 AND empty_since <= ?2;

-- name: clear_ring
-- in:   ?1 q, ?2 band
-- cost: one row per lane that was ever in the ring
DELETE FROM place WHERE due IS NULL AND q = ?1 AND band = ?2;

-- name: drop_ring
-- in:   ?1 q, ?2 band
-- cost: one row
DELETE FROM ring WHERE q = ?1 AND band = ?2;

-- name: leave
-- in:   ?1 q, ?2 lane, ?3 band
-- cost: one row; the lane keeps its clock
UPDATE place SET due = NULL WHERE q = ?1 AND lane = ?2 AND band = ?3;

-- name: any_place
-- in:   ?1 q
-- out:  1 if a lane of the queue is in a ring
-- cost: one seek
SELECT 1 FROM place WHERE due IS NOT NULL AND q = ?1 LIMIT 1;

-- name: rebase_places
-- in:   ?1 q, ?2 band, ?3 base
-- cost: one row per lane of the ring; once in 2^32 claims
UPDATE place SET clock = MAX(0, clock - ?3), due = due - ?3 WHERE q = ?1 AND band = ?2;

-- name: rebase_ring
-- in:   ?1 q, ?2 band
-- cost: one row
UPDATE ring SET time = 0 WHERE q = ?1 AND band = ?2;

-- name: clear_places
-- in:   ?1 q
-- cost: one row per lane; when the layout of an unused queue changes
DELETE FROM place WHERE q = ?1;

-- name: clear_rings
-- in:   ?1 q
-- cost: one row per band
DELETE FROM ring WHERE q = ?1;

-- name: lanes_of
-- in:   ?1 q
-- out:  names of the lanes that have ready jobs
-- cost: one row per lane; when settings of the queue change
SELECT name FROM lane WHERE q = ?1 AND ready > 0;

-- name: due_lanes
-- in:   ?1 q, ?2 now, ?3 limit
-- out:  names of parked lanes that have a token again
-- cost: one row per lane, at most `limit`
SELECT name FROM lane WHERE wake_at IS NOT NULL AND q = ?1 AND wake_at <= ?2 ORDER BY wake_at LIMIT ?3;

-- name: rated_lanes
-- in:   ?1 q
-- out:  names of lanes that have spent a token
-- cost: one row per lane of the queue; only when the clock was set back
SELECT name FROM lane WHERE q = ?1 AND level IS NOT NULL;

-- name: next_token
-- in:   ?1 q
-- out:  name, wake_at of the first parked lane that has a token again
-- cost: one seek
SELECT name, wake_at FROM lane WHERE wake_at IS NOT NULL AND q = ?1 ORDER BY wake_at LIMIT 1;

-- name: any_suspect
-- in:   ?1 q
-- out:  1 if the queue has a suspect
-- cost: one seek
SELECT 1 FROM job WHERE state = {ready} AND crashes >= {suspect_after} AND q = ?1 LIMIT 1;

-- name: any_ready
-- in:   ?1 q
-- out:  1 if the queue has a ready job, suspects too
-- cost: two seeks
SELECT 1 WHERE EXISTS (SELECT 1 FROM job WHERE state = {ready} AND crashes < {suspect_after} AND q = ?1)
    OR EXISTS (SELECT 1 FROM job WHERE state = {ready} AND crashes >= {suspect_after} AND q = ?1);

-- name: forget_idle
-- in:   ?1 q, ?2 limit
-- cost: `limit` rows: idle lanes that their ring has passed would enter at its time anyway
DELETE FROM place WHERE (q, lane, band) IN (
    SELECT place.q, place.lane, place.band FROM ring
    JOIN place ON place.due IS NULL AND place.q = ring.q AND place.band = ring.band AND place.clock <= ring.time
    WHERE ring.q = ?1 LIMIT ?2);
