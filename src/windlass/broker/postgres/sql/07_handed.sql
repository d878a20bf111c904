-- Claim: leases as whoever asked for them is told of them (`handed`).
--
-- Keys touched: job, where its row has yet to say that it is leased. Cost: a look at each job.

-- Leases as they are handed out, in this order.
DROP FUNCTION IF EXISTS _leased(bigint[]);
CREATE OR REPLACE FUNCTION _leased(p_jobs bigint[]) RETURNS SETOF handed LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_at bigint := _at();
BEGIN
    RETURN QUERY
        SELECT NULL::text, NULL::boolean, NULL::bigint, NULL::integer, NULL::text[], NULL::text[], NULL::smallint[],
            NULL::text[], NULL::text[], NULL::bytea[], j.id, j.fence, j.task, j.queue, j.lane, j.priority, j.attempt, j.max_attempts, j.crashes,
            j.revision, j.payload, j.headers, j.tags, j.flow, j.after_ids,
            CASE WHEN j.has_memos THEN array(SELECT m.name FROM memo m WHERE m.n = j.n ORDER BY m.name)::text[] END,
            CASE WHEN j.has_memos THEN array(SELECT m.value FROM memo m WHERE m.n = j.n ORDER BY m.name) END,
            greatest(0, j.claimed_at - j.due_at), CASE WHEN NOT j.started THEN j.expires_at - v_at END, j.deadline - v_at
        FROM unnest(p_jobs) WITH ORDINALITY AS u (n, o) CROSS JOIN LATERAL (SELECT * FROM job WHERE n = u.n OFFSET 0) j ORDER BY u.o;
END $$;

-- Lease jobs by this ask, and show them likewise. Their places are taken already (`_start_many`). One look at a job instead of two.
DROP FUNCTION IF EXISTS _lease_out(ask, bigint[]);
CREATE OR REPLACE FUNCTION _lease_out(a ask, p_jobs bigint[]) RETURNS SETOF handed LANGUAGE plpgsql AS $$
DECLARE
    v_at bigint := _at();
    flat record;   -- its arrays are not copied for every row, as variables of their own would be
BEGIN
    SELECT array_agg(u.n) AS jobs, array_agg(u.o) AS places INTO flat
    FROM (SELECT n, o FROM unnest(p_jobs) WITH ORDINALITY AS w (n, o) ORDER BY n) u;
    RETURN QUERY
        WITH j AS (
            UPDATE job o SET state = 3, reason = NULL, fence = greatest(o.fence + 1, v_at), attempt = o.attempt + 1,
                claimed_at = v_at, session = a.session, deadline = v_at + a.visibility, timer = v_at + a.visibility
            WHERE o.n = ANY (flat.jobs)
            -- An array that is in order tells the place of a value by halves.
            RETURNING flat.places[width_bucket(o.n, flat.jobs)] AS place, o.n, o.id, o.fence, o.task, o.queue, o.lane, o.priority, o.attempt,
                o.max_attempts, o.crashes, o.revision, o.payload, o.headers, o.tags, o.flow, o.after_ids, o.has_memos, o.due_at,
                CASE WHEN NOT o.started THEN o.expires_at - v_at END AS expires_in)
        SELECT NULL::text, NULL::boolean, NULL::bigint, NULL::integer, NULL::text[], NULL::text[], NULL::smallint[],
            NULL::text[], NULL::text[], NULL::bytea[], j.id, j.fence, j.task, j.queue, j.lane, j.priority, j.attempt, j.max_attempts, j.crashes,
            j.revision, j.payload, j.headers, j.tags, j.flow, j.after_ids,
            CASE WHEN j.has_memos THEN array(SELECT m.name FROM memo m WHERE m.n = j.n ORDER BY m.name)::text[] END,
            CASE WHEN j.has_memos THEN array(SELECT m.value FROM memo m WHERE m.n = j.n ORDER BY m.name) END,
            greatest(0, v_at - j.due_at), j.expires_in, a.visibility
        FROM j ORDER BY j.place;
END $$;

-- Show jobs that were leased in blocks just now: their rows do not say so. p_by_blocks: a block a row; its jobs are of one call, and differ
-- in id and payload alone.
CREATE OR REPLACE FUNCTION _leased_in_blocks(a ask, p_jobs bigint[], p_by_blocks boolean) RETURNS SETOF handed LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_at bigint := _at();
BEGIN
    IF p_by_blocks THEN
        RETURN QUERY
            SELECT NULL::text, NULL::boolean, NULL::bigint, NULL::integer, NULL::text[], NULL::text[], NULL::smallint[],
                NULL::text[], m.ids, m.payloads, NULL::uuid, v_at, j.task, j.queue, j.lane, j.priority, j.attempt + 1, j.max_attempts, j.crashes,
                j.revision, NULL::bytea, j.headers, j.tags, j.flow, j.after_ids, NULL::text[], NULL::bytea[],
                greatest(0, v_at - j.due_at), NULL::bigint, NULL::bigint
            FROM (SELECT jobs, i FROM lease_block
                  WHERE session = a.session AND n >= (SELECT min(u.n) FROM unnest(p_jobs) AS u (n)) AND ask = a.seq) b
            CROSS JOIN LATERAL (SELECT * FROM job WHERE n = b.jobs[1] OFFSET 0) j
            CROSS JOIN LATERAL (
                SELECT array_agg(o.id::text) AS ids, array_agg(o.payload) AS payloads
                FROM (SELECT id, payload FROM job WHERE n = ANY (b.jobs) ORDER BY n) o) m
            ORDER BY b.i;
        RETURN;
    END IF;
    RETURN QUERY
        SELECT NULL::text, NULL::boolean, NULL::bigint, NULL::integer, NULL::text[], NULL::text[], NULL::smallint[],
            NULL::text[], NULL::text[], NULL::bytea[], j.id, v_at, j.task, j.queue, j.lane, j.priority, j.attempt + 1, j.max_attempts, j.crashes,
            j.revision, j.payload, j.headers, j.tags, j.flow, j.after_ids, NULL::text[], NULL::bytea[],
            greatest(0, v_at - j.due_at), NULL::bigint, NULL::bigint
        FROM unnest(p_jobs) WITH ORDINALITY AS u (n, o) CROSS JOIN LATERAL (SELECT * FROM job WHERE n = u.n OFFSET 0) j ORDER BY u.o;
END $$;
