-- Blocks: ready jobs of one bulk call, up to a hundred to a row of `ready`, so that neither their call nor their claim pays for a
-- row each.
--
-- A block's jobs were never started and have task, band, expiry and attempts in common; nothing was filed between them, but by calls that ran
-- at the same time. Its row stands where its first job does: `n` and `seq` are the first of `jobs`, `size` is the sum of `sizes`. A claim
-- by whole numbers of jobs takes from its front. Whoever wants anything else of one of its jobs opens it first, and
-- finds them one by one. There are none in queues whose claims decide job by job; those that were there before are opened.
-- Keys touched: ready, and delta for jobs that are claimed. Cost: a row a block; opening one, a row a job.

-- How many of so many jobs stand in one row. With more to a row, workers who ask for a few would wait for each other: a row is locked
-- while somebody takes from it. With less than some it is not worth it.
CREATE OR REPLACE FUNCTION _block(p_jobs integer) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_jobs >= 16 THEN 100 ELSE 1 END
$$;

-- Put blocks down as single jobs. in: rows of `ready` that nobody else can take meanwhile; those that are no blocks stay.
CREATE OR REPLACE FUNCTION _open_blocks(p_places tid[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WITH b AS (DELETE FROM ready WHERE ctid = ANY (p_places) AND jobs IS NOT NULL RETURNING *)
    INSERT INTO ready (queue, lane, band, seq, n, task, size, expires_at, last, suspect)
    SELECT b.queue, b.lane, b.band, u.n, u.n, b.task, u.size, b.expires_at, b.last, b.suspect
    FROM b CROSS JOIN LATERAL unnest(b.jobs, b.sizes) AS u (n, size);
END $$;

-- Take a ready job out of its place. in: the job, and band and number that it was filed under.
CREATE OR REPLACE FUNCTION _leave_place(j job, p_band bigint, p_seq bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_block tid;
BEGIN
    DELETE FROM ready WHERE queue = j.queue AND lane = j.lane AND band = p_band AND seq = p_seq AND n = j.n AND jobs IS NULL;
    IF FOUND THEN
        RETURN;
    END IF;
    -- Mostly the nearest; earlier functions drew the numbers of calls that ran at the same time in turns.
    SELECT ctid INTO v_block FROM ready
    WHERE queue = j.queue AND lane = j.lane AND band = p_band AND seq <= p_seq AND j.n = ANY (jobs) ORDER BY seq DESC LIMIT 1;
    IF FOUND THEN
        PERFORM _open_blocks(ARRAY[v_block]);
        DELETE FROM ready WHERE queue = j.queue AND lane = j.lane AND band = p_band AND seq = p_seq AND n = j.n;
    END IF;
END $$;

-- In how many rows the first of a plain queue's jobs stand, so many of them.
CREATE OR REPLACE FUNCTION _rows_of(p_queue text, p_jobs integer) RETURNS integer LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_rows integer := 0;
    v_jobs integer := 0;
    v_count integer;
BEGIN
    FOR v_count IN
        SELECT coalesce(cardinality(jobs), 1) FROM ready WHERE queue = p_queue AND lane = '' AND NOT suspect ORDER BY band, seq LIMIT p_jobs
    LOOP
        v_rows := v_rows + 1;
        v_jobs := v_jobs + v_count;
        EXIT WHEN v_jobs >= p_jobs;
    END LOOP;
    RETURN v_rows;
END $$;

-- The jobs in these rows, in their order.
CREATE OR REPLACE FUNCTION _jobs_in(p_places tid[]) RETURNS bigint[] LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN array(
        SELECT u.n FROM unnest(p_places) WITH ORDINALITY AS w (place, o)
        CROSS JOIN LATERAL (SELECT coalesce(jobs, ARRAY[n]) AS jobs FROM ready WHERE ctid = w.place OFFSET 0) r
        CROSS JOIN LATERAL unnest(r.jobs) WITH ORDINALITY AS u (n, o)
        ORDER BY w.o, u.o);
END $$;

-- Take the first jobs of these rows, so many, out of their places, and count them as running; what is left of a block stays. a: if all of
-- the rows are blocks, and become blocks of leases (`04_lease_blocks.sql`), the ask; else NULL.
DROP FUNCTION IF EXISTS _leave_blocks(text, tid[], integer);
CREATE OR REPLACE FUNCTION _leave_blocks(p_queue text, p_places tid[], p_count integer, a ask) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_at bigint := _at();
    v_base bigint := CASE WHEN a.session IS NOT NULL THEN nextval('number') * 1024 END;
BEGIN
    WITH w AS MATERIALIZED (
        SELECT r.*, p_count - r.before AS taken   -- so many, if there were so many
        FROM (
            SELECT w.place, r.task, r.jobs, r.numbers, sum(r.jobs) OVER (ORDER BY w.o) - r.jobs AS before
            FROM unnest(p_places) WITH ORDINALITY AS w (place, o)
            CROSS JOIN LATERAL (
                SELECT task, coalesce(cardinality(jobs), 1) AS jobs, jobs AS numbers FROM ready WHERE ctid = w.place OFFSET 0) r) r
    ), leased AS (
        INSERT INTO lease_block (session, n, i, ask, queue, at, jobs)
        SELECT a.session, w.numbers[1], v_base + w.before + 1, a.seq, p_queue, v_at, w.numbers[: w.taken]
        FROM w WHERE w.taken > 0 AND a.session IS NOT NULL
    ), gone AS (
        DELETE FROM ready WHERE ctid = ANY (array(SELECT w.place FROM w WHERE w.taken >= w.jobs))
    ), cut AS (
        UPDATE ready r SET n = r.jobs[w.taken + 1], seq = r.jobs[w.taken + 1], jobs = r.jobs[w.taken + 1 :], sizes = r.sizes[w.taken + 1 :],
            size = (SELECT sum(u.size) FROM unnest(r.sizes[w.taken + 1 :]) AS u (size))
        FROM w WHERE r.ctid = w.place AND w.taken > 0 AND w.taken < w.jobs
    )
    INSERT INTO delta (queue, task, state, n, bytes)
    SELECT p_queue, t.task, s.state, s.by * t.n, 0
    FROM (SELECT w.task, sum(least(w.taken, w.jobs)) AS n FROM w WHERE w.taken > 0 GROUP BY w.task) t, (VALUES (2, -1), (3, 1)) s (state, by);
END $$;
