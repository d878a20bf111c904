-- Settings and schedules: small documents with compare-and-set.

-- name: layers
-- in:   ?1 kind, ?2 name, ?3 lane
-- out:  declared, override, app, revision, version
-- cost: one row
SELECT declared, override, app, revision, version FROM document WHERE kind = ?1 AND name = ?2 AND lane = ?3;

-- name: save_layers
-- in:   ?1 kind, ?2 name, ?3 lane, ?4 declared, ?5 override, ?6 app, ?7 revision, ?8 version
-- cost: one row
INSERT INTO document (kind, name, lane, declared, override, app, revision, version)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (kind, name, lane) DO UPDATE SET declared = ?4, override = ?5, app = ?6, revision = ?7, version = ?8;

-- name: drop_layers
-- in:   ?1 kind, ?2 name, ?3 lane
-- cost: one row
DELETE FROM document WHERE kind = ?1 AND name = ?2 AND lane = ?3;

-- name: all_layers
-- in:   ?1 kind, ?2 and ?3 the name and lane before (NULL: none), ?4 limit
-- out:  name, lane, declared, override, app, revision, version, by name and lane
-- cost: `limit` rows
SELECT name, lane, declared, override, app, revision, version FROM document
WHERE kind = ?1 AND (?2 IS NULL OR (name, lane) > (?2, ?3)) ORDER BY name, lane LIMIT ?4;

-- name: schedule
-- in:   ?1 name
-- out:  declared, override, app, revision, version, next_at, paused, fires
-- cost: one row
SELECT declared, override, app, revision, version, next_at, paused, fires FROM schedule WHERE name = ?1;

-- name: save_schedule
-- in:   ?1 name, ?2 declared, ?3 override, ?4 app, ?5 revision, ?6 version, ?7 next_at, ?8 paused, ?9 fires
-- cost: one row
INSERT INTO schedule (name, declared, override, app, revision, version, next_at, paused, fires)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (name) DO UPDATE SET declared = ?2, override = ?3, app = ?4, revision = ?5, version = ?6, next_at = ?7,
    paused = ?8, fires = ?9;

-- name: drop_schedule
-- in:   ?1 name
-- out:  1 if there was one
-- cost: one row
DELETE FROM schedule WHERE name = ?1 RETURNING 1;

-- name: schedules
-- in:   ?1 the name before, ?2 limit
-- out:  name, declared, override, app, revision, version, next_at, paused, fires, by name
-- cost: `limit` rows
SELECT name, declared, override, app, revision, version, next_at, paused, fires FROM schedule
WHERE name > ?1 ORDER BY name LIMIT ?2;
