-- Claim: how jobs that were chosen become leases.
--
-- Keys touched: ready, lease, job, delta, event_in. Cost: a few rows a job.

-- Lease jobs of a queue, in this order. p_places: where they stand among the ready ones; their rows are locked. p_lanes: their
-- lanes, none if they have none. That their own rows say so is left to who shows them, unless it is an event.
CREATE OR REPLACE FUNCTION _start_many(q queue, a ask, p_jobs bigint[], p_places tid[], p_lanes text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_at bigint := _at();
    v_base bigint := nextval('number') * 1024;
BEGIN
    WITH gone AS (DELETE FROM ready WHERE ctid = ANY (p_places) RETURNING task)
    INSERT INTO delta (queue, task, state, n, bytes)
    SELECT q.name, t.task, s.state, s.by * t.n, 0
    FROM (SELECT g.task, count(*) AS n FROM gone g GROUP BY g.task) t, (VALUES (2, -1), (3, 1)) s (state, by);
    INSERT INTO lease (session, n, i, ask, queue, lane)
    SELECT coalesce(a.session, ''), u.n, v_base + u.o, a.seq, q.name, coalesce(u.lane, '')
    FROM unnest(p_jobs, p_lanes) WITH ORDINALITY AS u (n, lane, o);
    IF q.emit = 2 THEN
        PERFORM _lease(a, p_jobs);
        INSERT INTO event_in (at, job, task, queue, lane, move, before, after, attempt, fence, waited)
        SELECT v_at, t.id, t.task, q.name, t.lane, 'claim', 2, 3, t.attempt, t.fence, greatest(0, v_at - t.due_at)
        FROM unnest(p_jobs) WITH ORDINALITY AS u (n, o) CROSS JOIN LATERAL (SELECT * FROM job WHERE n = u.n OFFSET 0) t ORDER BY u.o;
    END IF;
END $$;

-- Have the rows of leased jobs say so, as far as they do not yet.
CREATE OR REPLACE FUNCTION _lease(a ask, p_jobs bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_at bigint := _at();
BEGIN
    UPDATE job o SET state = 3, reason = NULL, fence = greatest(o.fence + 1, v_at), attempt = o.attempt + 1,
        claimed_at = v_at, session = a.session, deadline = v_at + a.visibility, timer = v_at + a.visibility
    WHERE o.n = ANY (p_jobs) AND o.state = 2;
END $$;

-- Lease one job.
CREATE OR REPLACE FUNCTION _start(q queue, l lane, j job, a ask) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_at bigint := _at();
BEGIN
    PERFORM _occupy(q, l, j);
    j.state := 3;
    j.reason := NULL;
    j.fence := greatest(j.fence + 1, v_at);
    j.attempt := j.attempt + 1;
    PERFORM _transition(j, 2::smallint, 3::smallint, 'claim', NULL, NULL, NULL, greatest(0, v_at - j.due_at));
    PERFORM _leave_place(j, j.band, j.seq);
    INSERT INTO lease (session, n, i, ask, queue, lane) VALUES (coalesce(a.session, ''), j.n, nextval('number') * 1024, a.seq, j.queue, j.lane);
    UPDATE job SET state = 3, reason = NULL, fence = j.fence, attempt = j.attempt, claimed_at = v_at, session = a.session,
        deadline = v_at + a.visibility, timer = v_at + a.visibility
    WHERE n = j.n;
    PERFORM _refresh(j.queue, j.lane);
END $$;
