-- Places: where an unfinished job stands, and who holds it.
--
-- A job that is neither blocked nor scheduled is covered by exactly one run, of `ready` or of `lease`. A step that changes one job of a run carves the job
-- out first, which leaves at most two runs. Keys touched: ready, lease. Cost: a probe, and two rows where a run is carved.

-- The lease that covers a job; NULL if none does.
CREATE OR REPLACE FUNCTION _lease_of(p_queue text, p_lane text, p_n bigint) RETURNS lease LANGUAGE plpgsql STABLE AS $$
DECLARE
    l lease;
BEGIN
    -- Of bounded width, so that what an open transaction keeps of leases that are gone is not waded through.
    SELECT * INTO l FROM lease WHERE queue = p_queue AND lane = p_lane AND n BETWEEN p_n - RUN_WIDTH + 1 AND p_n ORDER BY n DESC LIMIT 1;
    RETURN CASE WHEN l.n + l.width > p_n THEN l END;
END $$;

-- A job as it stands: running, if a lease covers it.
CREATE OR REPLACE FUNCTION _as_leased(j job) RETURNS job LANGUAGE plpgsql STABLE AS $$
DECLARE
    l lease;
BEGIN
    IF j.state = STATE_READY THEN
        l := _lease_of(j.queue, j.lane, j.n);
        IF l.n IS NOT NULL THEN
            j.state := STATE_RUNNING;
            j.attempt := j.attempt + 1;
            j.fence := _new_fence(j.fence, l.at);
            j.claimed_at := l.at;
            j.session := nullif(l.session, '');
            j.deadline := l.deadline;
            j.cancel_requested := l.flagged;
        END IF;
    END IF;
    RETURN j;
END $$;

-- The job of this id as it stands, unfinished or past; NULL if there is none.
CREATE OR REPLACE FUNCTION _load(p_id uuid) RETURNS job LANGUAGE plpgsql STABLE AS $$
DECLARE
    j job;
BEGIN
    SELECT * INTO j FROM job WHERE id = p_id;
    RETURN CASE WHEN FOUND THEN _as_leased(j) ELSE _past(p_id) END;
END $$;

-- Take a job out of the run that covers it. in: the job, and the band and number that it was filed under.
CREATE OR REPLACE FUNCTION _leave_place(j job, p_band bigint, p_seq bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    r ready;
    l lease;
    v_before integer;
BEGIN
    DELETE FROM ready WHERE queue = j.queue AND lane = j.lane AND band = p_band AND seq = p_seq AND n = j.n AND width = 1;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT * INTO r FROM ready
    WHERE queue = j.queue AND lane = j.lane AND band = p_band AND seq BETWEEN p_seq - RUN_WIDTH + 1 AND p_seq AND n <= j.n AND n + width > j.n
    ORDER BY seq DESC LIMIT 1;
    IF FOUND THEN
        DELETE FROM ready WHERE queue = j.queue AND lane = j.lane AND band = p_band AND seq = r.seq AND n = r.n;
        INSERT INTO ready (queue, lane, band, seq, n, width, task, size, expires_at, last, suspect)
        SELECT r.queue, r.lane, r.band, p.n, p.n, p.width, r.task,
            (SELECT sum(o.size) FROM job o WHERE o.n BETWEEN p.n AND p.n + p.width - 1), r.expires_at, r.last, r.suspect
        FROM (VALUES (r.n, j.n - r.n), (j.n + 1, r.n + r.width - j.n - 1)) p (n, width) WHERE p.width > 0;
        RETURN;
    END IF;
    l := _lease_of(j.queue, j.lane, j.n);
    -- As it stands now: a step beside this one may have ended other jobs of the run, or carved it.
    DELETE FROM lease WHERE session = l.session AND n = l.n AND n + width > j.n RETURNING * INTO l;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another step has carved the run' USING ERRCODE = 'serialization_failure';
    END IF;
    IF l.width > 1 THEN
        -- A job of the run that has finished may be back from the past; it is not leased any more.
        v_before := CASE WHEN j.n > l.n THEN (SELECT count(*) FROM job WHERE n BETWEEN l.n AND j.n - 1 AND state = STATE_READY) ELSE 0 END;
        INSERT INTO lease (session, n, width, remaining, i, ask, queue, lane, at, deadline, flagged)
        SELECT l.session, p.n, p.width, p.remaining, l.i, l.ask, l.queue, l.lane, l.at, l.deadline, l.flagged
        FROM (VALUES (l.n, j.n - l.n, v_before), (j.n + 1, l.n + l.width - j.n - 1, l.remaining - v_before - 1)) p (n, width, remaining)
        WHERE p.remaining > 0;
    END IF;
END $$;

-- Give a running job a lease of its own, to change it alone. out: the lease.
CREATE OR REPLACE FUNCTION _own_lease(j job) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    l lease := _lease_of(j.queue, j.lane, j.n);
BEGIN
    IF l.width > 1 THEN
        PERFORM _leave_place(j, j.band, j.seq);
        INSERT INTO lease (session, n, width, remaining, i, ask, queue, lane, at, deadline, flagged)
        VALUES (l.session, j.n, 1, 1, l.i, l.ask, l.queue, l.lane, l.at, l.deadline, l.flagged);
    END IF;
END $$;

-- Let ready jobs of a queue stand one by one: those of the run that begins with p_n, or of all runs (NULL).
CREATE OR REPLACE FUNCTION _split_runs(p_queue text, p_n bigint DEFAULT NULL) RETURNS void LANGUAGE sql AS $$
    WITH gone AS (DELETE FROM ready WHERE queue = p_queue AND lane = '' AND width > 1 AND (p_n IS NULL OR n = p_n) RETURNING *)
    INSERT INTO ready (queue, lane, band, seq, n, task, size, expires_at, last, suspect)
    SELECT g.queue, g.lane, g.band, j.n, j.n, g.task, j.size, g.expires_at, g.last, g.suspect
    FROM gone g JOIN job j ON j.n BETWEEN g.n AND g.n + g.width - 1
$$;

-- Floors ----------------------------------------------------------------------------------------------------------------------------------------------

-- The stretches in which the plain lane of a queue has its ready jobs, first to last: from (band, seq) to the band before `until`.
CREATE OR REPLACE FUNCTION _stretches(p_queue text, OUT band bigint, OUT seq bigint, OUT until bigint) RETURNS SETOF record LANGUAGE sql STABLE AS $$
    SELECT f.band, f.seq, lead(f.band, 1, LAST_BAND) OVER (ORDER BY f.band)
    FROM (SELECT -LAST_BAND AS band, 0::bigint AS seq UNION ALL SELECT o.band, o.seq FROM floor o WHERE o.queue = p_queue) f
    ORDER BY f.band
$$;

-- The first runs of a queue's plain lane, in order.
CREATE OR REPLACE FUNCTION _front(p_queue text, p_rows integer) RETURNS SETOF ready LANGUAGE sql STABLE AS $$
    SELECT r.* FROM _stretches(p_queue) f CROSS JOIN LATERAL (
        SELECT * FROM ready
        WHERE queue = p_queue AND lane = '' AND NOT suspect AND (band, seq) >= (f.band, f.seq) AND band < f.until
        ORDER BY band, seq LIMIT p_rows) r
    LIMIT p_rows
$$;

-- In how many rows the first of a queue's jobs stand, so many of them: no more runs are to be locked than are taken.
CREATE OR REPLACE FUNCTION _rows_of(p_queue text, p_jobs integer) RETURNS integer LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_rows integer := 0;
    v_jobs integer := 0;
    v_width integer;
BEGIN
    FOR v_width IN SELECT width FROM _front(p_queue, p_jobs) LOOP
        v_rows := v_rows + 1;
        v_jobs := v_jobs + v_width;
        EXIT WHEN v_jobs >= p_jobs;
    END LOOP;
    RETURN v_rows;
END $$;

-- Raise the floors of queues whose jobs have moved since the last time: to the first ready job of the band, or above every number that was drawn. Needs
-- the namespace to itself: a step beside this one may be about to file a job with an older number. At most 32 bands of a queue keep a floor.
CREATE OR REPLACE FUNCTION _raise_floors() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := _draw_numbers();
BEGIN
    UPDATE floor f SET seq = o.first FROM (
        SELECT w.queue, w.band, coalesce((
            SELECT r.seq FROM ready r WHERE r.queue = w.queue AND r.lane = '' AND NOT r.suspect AND r.band = w.band AND r.seq >= w.seq
            ORDER BY r.seq LIMIT 1), v_now) AS first
        FROM (SELECT DISTINCT d.queue FROM delta d WHERE d.i > (SELECT cleared FROM meta)) m JOIN floor w ON w.queue = m.queue) o
    WHERE f.queue = o.queue AND f.band = o.band AND o.first > f.seq;
    DELETE FROM floor f USING (SELECT queue, band, row_number() OVER (PARTITION BY queue ORDER BY seq DESC) AS nth FROM floor) o
    WHERE o.nth > 32 AND f.queue = o.queue AND f.band = o.band;
END $$;
