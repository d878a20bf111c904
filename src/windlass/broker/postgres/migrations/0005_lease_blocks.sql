-- Layout 5: jobs that were claimed as blocks are leased as blocks (`04_lease_blocks.sql`); and of a job that has run once, the past keeps its
-- run time and its session in the place of a record of its only end.
SELECT pg_advisory_xact_lock(1464422980, 'job'::regclass::oid::integer);   -- as all do who change jobs: see 0004
LOCK TABLE queue, job, past IN ACCESS EXCLUSIVE MODE;
ALTER TABLE job ADD COLUMN runtime bigint;    -- in `past`; a row of it is read as one of `job`
ALTER TABLE past ADD COLUMN runtime bigint;
CREATE TABLE lease_block (
    session text COLLATE "C" NOT NULL,
    n       bigint   NOT NULL,                        -- the first of its jobs
    i       bigint   NOT NULL,                        -- leases end in the order of their claims; those of a block follow each other
    ask     bigint   NOT NULL,                        -- the session's ask that it answered
    queue   text COLLATE "C" NOT NULL,
    at      bigint   NOT NULL,                        -- when they were claimed, and the fence of each
    jobs    bigint[] NOT NULL,                        -- numbers, in order
    PRIMARY KEY (session, n)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX lease_block_n ON lease_block (queue, n);
-- What claims return, in the place of `claimed`, which functions of before have: the first row is the head (no job), the others are leases. Of a
-- block there is one, with the numbers in common and, instead of a job and its payload, arrays.
CREATE TYPE handed AS (
    asker        text,
    more         boolean,
    next_in      bigint,
    suspects     integer,
    verdicts     text[],
    outcomes     text[],
    states       smallint[],
    whys         text[],
    job          uuid,
    fence        bigint,
    task         text,
    queue        text,
    lane         text,
    priority     smallint,
    attempt      integer,
    max_attempts integer,
    crashes      integer,
    revision     bigint,
    payload      bytea,
    headers      bytea,
    tags         bytea,
    flow         text,
    parents      uuid[],
    memo_names   text[],
    memo_values  bytea[],
    waited       bigint,
    expires_in   bigint,
    visibility   bigint,
    ids          text[],
    payloads     bytea[]
);
