-- Layout 4: jobs of one call that stand next to each other may be one row of `ready` (`04_blocks.sql`).
SELECT pg_advisory_xact_lock(1464422980, 'job'::regclass::oid::integer);   -- whoever waits for `ready` holds `queue`: one would wait for the other
LOCK TABLE queue, ready IN ACCESS EXCLUSIVE MODE;                          -- as all do who only read: `queue` first
ALTER TABLE ready ADD COLUMN jobs bigint[], ADD COLUMN sizes integer[];   -- of a block: numbers, in order, and bytes of payload
ALTER TABLE queue ADD COLUMN has_blocks boolean;   -- whether it has had one; functions of before do not know of it, and leave it empty
