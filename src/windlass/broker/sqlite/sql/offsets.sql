-- Offsets of sources, which move together with the jobs that come of them.

-- name: offset
-- in:   ?1 the name of a source
-- out:  identity, at, moved_at
-- cost: one row
SELECT identity, at, moved_at FROM source_offset WHERE source = ?1;

-- name: save_offset
-- in:   ?1 the name of a source, ?2 its identity, ?3 at, ?4 moved_at
-- cost: one row
INSERT INTO source_offset (source, identity, at, moved_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (source) DO UPDATE SET identity = ?2, at = ?3, moved_at = ?4;

-- name: drop_offset
-- in:   ?1 the name of a source
-- cost: one row
DELETE FROM source_offset WHERE source = ?1;

-- name: offsets
-- in:   ?1 the name before, ?2 limit
-- out:  source, identity, at, moved_at, by source
-- cost: `limit` rows
SELECT source, identity, at, moved_at FROM source_offset WHERE source > ?1 ORDER BY source LIMIT ?2;
