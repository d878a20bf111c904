-- Layout 5: jobs that were claimed as blocks are leased as blocks (`04_lease_blocks.sql`).
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
-- Who may work with leases may do so with these: roles were given their rights when there was no such table.
DO $$
DECLARE
    v_right text;
BEGIN
    FOR v_right IN
        SELECT format('GRANT %s ON lease_block TO %s', string_agg(DISTINCT a.privilege_type, ', '),
            CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END)
        FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a WHERE c.oid = 'lease'::regclass AND a.grantee <> c.relowner
        GROUP BY a.grantee
    LOOP
        EXECUTE v_right;
    END LOOP;
END $$;
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
    ids          text[],                              -- not last: earlier programs count the places of a lease from its end
    payloads     bytea[],
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
    visibility   bigint
);
