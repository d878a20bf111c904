-- Lease blocks: jobs that stood in blocks (`04_blocks.sql`) and were claimed as they stood there. Neither their claim nor their end
-- pays for a row of `lease` each, and the claim leaves their own rows alone.
--
-- So the row of such a job still says that it is ready and was never started; whose it is, since when, and under which fence, its
-- block says. Its queue is plain and has a past, it has no expiry, its session no deadline for it. Who knows of blocks: the claim
-- (`_leave_blocks`), the short way of settling (`_end_in_blocks`), a settlement in a caller's transaction (`settle_here`), whoever counts
-- leases (`_has_leases`, `_lanes_in_use`, `_refused_settings`, the reads of lanes and sessions), and reads of jobs (`_as_leased`). Whoever else
-- wants anything of one of the jobs opens its block first, and finds a row of `lease` for each, and jobs whose own rows say that they are leased.
--
-- Whoever changes the blocks of a session holds a lock of that session, which it takes before it locks any of the jobs, or has
-- the namespace to itself.
-- Keys touched: lease_block; opened, lease and job. Cost: a row a block; opened, two a job. A queue that gets its first lane, or limits, has
-- all of its blocks opened in that step, 5 µs a job: once, and as many as workers have in their hands.

CREATE OR REPLACE FUNCTION _lock_blocks(p_session text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1464422983, hashtext(p_session));
END $$;

-- Put blocks down as single leases. in: rows of `lease_block` that nobody else changes meanwhile.
CREATE OR REPLACE FUNCTION _open_leases(p_places tid[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    b lease_block;
BEGIN
    FOR b IN DELETE FROM lease_block WHERE ctid = ANY (p_places) RETURNING * LOOP
        UPDATE job SET state = 3, fence = b.at, attempt = attempt + 1, claimed_at = b.at, session = b.session WHERE n = ANY (b.jobs);
        INSERT INTO lease (session, n, i, ask, queue, lane)
        SELECT b.session, u.n, b.i + u.o - 1, b.ask, b.queue, '' FROM unnest(b.jobs) WITH ORDINALITY AS u (n, o);
    END LOOP;
END $$;

-- The same for all blocks of a queue, of which single leases are counted from now on. Needs the namespace to itself.
CREATE OR REPLACE FUNCTION _open_leases_in(p_queue text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _open_leases(array(SELECT ctid FROM lease_block WHERE queue = p_queue));
END $$;

-- The block that a job is leased in, if it is. in: its queue and number. The numbers of a block are of one draw (`_take_plain`), so that
-- there are few to look at, however many jobs are leased. A draw is of 1,024 (`_NUMBERS` in `arrays.py`, `06_produce.sql`): hence 1,023.
CREATE OR REPLACE FUNCTION _lease_block_of(p_queue text, p_n bigint) RETURNS TABLE (place tid, session text, at bigint) LANGUAGE sql STABLE AS $$
    SELECT b.ctid, b.session, b.at FROM lease_block b
    WHERE b.queue = p_queue AND b.n BETWEEN p_n - 1023 AND p_n AND p_n = ANY (b.jobs) ORDER BY b.n DESC LIMIT 1
$$;

-- The same for the blocks in which these jobs are leased, if they are.
CREATE OR REPLACE FUNCTION _open_leases_with(p_jobs uuid[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_sessions text[];
BEGIN
    -- Whether there is any block at all is not asked: what an open transaction keeps of those that are gone would be waded through.
    v_sessions := array(
        SELECT DISTINCT b.session FROM (SELECT queue, n FROM job WHERE id = ANY (p_jobs) AND state = 2 OFFSET 0) j
        CROSS JOIN LATERAL _lease_block_of(j.queue, j.n) b WHERE b.session IS NOT NULL ORDER BY b.session);
    IF cardinality(v_sessions) = 0 THEN
        RETURN;
    END IF;
    PERFORM _lock_blocks(s) FROM unnest(v_sessions) AS u (s);
    -- As they stand now: somebody may have been waited for.
    PERFORM _open_leases(array(
        SELECT DISTINCT b.place FROM (SELECT queue, n FROM job WHERE id = ANY (p_jobs) AND state = 2 OFFSET 0) j
        CROSS JOIN LATERAL _lease_block_of(j.queue, j.n) b WHERE b.session = ANY (v_sessions)));
END $$;

-- A job as it is: leased, if it is so in a block.
CREATE OR REPLACE FUNCTION _as_leased(j job) RETURNS job LANGUAGE plpgsql STABLE AS $$
DECLARE
    b record;
BEGIN
    IF j.state = 2 THEN
        SELECT * INTO b FROM _lease_block_of(j.queue, j.n);
        IF FOUND THEN
            j.state := 3;
            j.fence := b.at;
            j.attempt := j.attempt + 1;
            j.claimed_at := b.at;
            j.session := b.session;
        END IF;
    END IF;
    RETURN j;
END $$;

-- Take jobs that have ended out of the blocks of a session, whose lock is held. in: their numbers, and the fences that were said.
-- out: how many of them stood there under these.
CREATE OR REPLACE FUNCTION _end_in_blocks(p_session text, p_jobs bigint[], p_fences bigint[]) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    b record;
    flat record;
    v_from integer;
    v_to integer;
    v_ended bigint[];
    v_left bigint[];
    v_gone tid[] := '{}';
    v_found integer := 0;
BEGIN
    SELECT array_agg(u.n) AS jobs, array_agg(u.fence) AS fences INTO flat
    FROM (SELECT w.n, w.fence FROM unnest(p_jobs, p_fences) AS w (n, fence) ORDER BY w.n) u;
    FOR b IN
        SELECT ctid AS place, jobs, at FROM lease_block
        WHERE session = p_session AND n BETWEEN flat.jobs[1] - 1023 AND flat.jobs[cardinality(flat.jobs)]
    LOOP
        -- An array that is in order tells the place of a value by halves.
        v_from := width_bucket(b.jobs[1] - 1, flat.jobs) + 1;
        v_to := width_bucket(b.jobs[cardinality(b.jobs)], flat.jobs);
        CONTINUE WHEN v_from > v_to;
        v_ended := flat.jobs[v_from : v_to];
        CONTINUE WHEN NOT b.at = ALL (flat.fences[v_from : v_to]);
        IF v_ended = b.jobs THEN   -- mostly
            v_gone := v_gone || b.place;
            v_found := v_found + cardinality(v_ended);
        ELSE
            v_left := array(SELECT u.n FROM unnest(b.jobs) WITH ORDINALITY AS u (n, o) WHERE u.n <> ALL (v_ended) ORDER BY u.o);
            v_found := v_found + cardinality(b.jobs) - cardinality(v_left);
            IF v_left = '{}' THEN
                v_gone := v_gone || b.place;
            ELSE
                UPDATE lease_block SET n = v_left[1], jobs = v_left WHERE ctid = b.place;
            END IF;
        END IF;
    END LOOP;
    IF cardinality(v_gone) > 0 THEN
        DELETE FROM lease_block WHERE ctid = ANY (v_gone);
    END IF;
    RETURN v_found;
END $$;
