-- Layout 4: jobs of one call that stand next to each other may be one row of `ready` (`04_blocks.sql`).
ALTER TABLE ready ADD COLUMN jobs bigint[], ADD COLUMN sizes integer[];   -- of a block: numbers, in order, and bytes of payload
ALTER TABLE queue ADD COLUMN has_blocks boolean;   -- whether it has had one; functions of before do not know of it, and leave it empty
