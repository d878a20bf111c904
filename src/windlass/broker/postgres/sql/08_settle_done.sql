-- Settle, the short way for what most calls are: jobs that are done, without errors and children, and go to the past.
--
-- Keys touched: job, past, lease, delta, timed; with lanes seat and ring; those of the claim. Cost: a few rows a job.

-- End leases of plain jobs of a queue that are done and go to the past, all at once. in: where their rows are, which are locked,
-- and what is said of them, place by place; p_results may be empty; p_session: a session that is alive; p_sessions: all that they belong to. out: how many of them
-- it could end so.
CREATE OR REPLACE FUNCTION _settle_past(
    q queue, p_places tid[], p_fences bigint[], p_runtimes bigint[], p_results bytea[], p_session text, p_sessions text[]
) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    v_at bigint := _at();
    v_ended bigint[];
BEGIN
    IF NOT _has_past(q)
        -- After a step back of the clock they would be forgotten already.
        OR EXISTS (SELECT FROM horizon h WHERE h.queue = q.name AND h.finished_at >= v_at) THEN
        RETURN 0;
    END IF;
    WITH gone AS (
        DELETE FROM job j
        USING unnest(p_places, p_fences, p_runtimes, p_results) AS u (place, fence, runtime, result)
        WHERE j.ctid = u.place AND j.state = 3 AND j.fence = u.fence AND j.queue = q.name
          AND NOT j.has_children AND j.log_lines = 0 AND j.after_ids IS NULL AND j.flow = '' AND NOT j.has_memos
          AND (j.session = p_session OR j.session IS NULL
               OR EXISTS (SELECT FROM session s WHERE s.id = j.session AND s.ended_at IS NULL))
        -- What is read by several comes first.
        RETURNING j.task, j.session, j.n, u.result, u.runtime, j.id, j.priority, j.attempt, j.max_attempts, j.crashes, j.revision,
            j.lane, j.band, j.seq, j.accepted_at, j.due_at, j.fence, j.claimed_at, j.size, j.replays, j.parent, j.expires_at, j.key,
            j.mode, j.win, j.permille, j.message, j.headers, j.tags, j.deliveries, j.error, j.payload
    ), kept AS (
        INSERT INTO past (id, n, state, priority, attempt, max_attempts, crashes, revision, queue, lane, task, band, seq, accepted_at,
            due_at, fence, claimed_at, size, started, replays, kept, parent, expires_at, finished_at, key, mode, win, permille, message,
            headers, tags, deliveries, error, result, payload, slot)
        SELECT g.id, g.n, 4, g.priority, g.attempt, g.max_attempts, g.crashes, g.revision, q.name, g.lane, g.task, g.band, g.seq,
            g.accepted_at, g.due_at, g.fence, g.claimed_at, g.size + coalesce(octet_length(g.result), 0), true, g.replays,
            (g.result IS NOT NULL)::integer, g.parent, g.expires_at, v_at, g.key, g.mode, g.win, g.permille, g.message, g.headers, g.tags,
            CASE WHEN g.deliveries IS NULL THEN ARRAY[
                ROW(g.fence, g.attempt, g.session, g.claimed_at, v_at, 'done', true, NULL, g.runtime, NULL)::ended]
            ELSE g.deliveries[greatest(1, cardinality(g.deliveries) - 8):] ||
                ROW(g.fence, g.attempt, g.session, g.claimed_at, v_at, 'done', true, NULL, g.runtime, NULL)::ended END,
            g.error, g.result, g.payload, q.slot
        FROM gone g
    ), tasks AS MATERIALIZED (
        SELECT g.task, count(*) AS n, array_agg(g.n) AS jobs, coalesce(sum(octet_length(g.result)), 0) AS grown, bool_or(g.runtime IS NOT NULL) AS timed
        FROM gone g GROUP BY g.task
    ), counted AS (
        INSERT INTO delta (queue, task, state, n, bytes)
        SELECT q.name, t.task, s.state, s.by * t.n, CASE s.state WHEN 4 THEN t.grown ELSE 0 END
        FROM tasks t, (VALUES (3, -1), (4, 1)) s (state, by)
    ), timed_now AS (
        INSERT INTO timed (task)
        SELECT t.task FROM tasks t WHERE t.timed AND NOT EXISTS (SELECT FROM timed d WHERE d.task = t.task)
        ORDER BY t.task   -- as everybody else, so that nobody waits in a circle
        ON CONFLICT DO NOTHING
    )
    SELECT array_agg(j.n) INTO v_ended FROM tasks t, unnest(t.jobs) j (n);
    DELETE FROM lease WHERE session = ANY (p_sessions) AND n = ANY (v_ended);
    RETURN coalesce(cardinality(v_ended), 0);
END $$;

-- in: jobs that are all done; p_alone: whether it needs the namespace to itself, as lanes and limits do; p_results: empty if there are
-- none. out: as settle; no verdicts in the head if every one was applied. Gives up: WL001 if it must be alone, WL004 if something of
-- this call, WL005 if something of its queues is more than it can do.
CREATE OR REPLACE FUNCTION settle_done(
    p_now bigint, p_alone boolean, p_jobs uuid[], p_fences bigint[], p_runtimes bigint[], p_results bytea[],
    p_ask_queues text[], p_slots integer, p_size integer, p_session text, p_seq bigint, p_visibility bigint,
    p_suspects boolean, p_max_bytes bigint, p_draw bigint
) RETURNS SETOF claimed LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    x record;
    c claimed;
    q queue;
    v_count integer := cardinality(p_jobs);
    v_done integer := 0;
    v_sessions text[];
BEGIN
    IF p_alone THEN
        PERFORM _begin_alone(p_now);
    ELSE
        PERFORM _begin_beside(p_now);
    END IF;
    -- Nobody is waited for while the lock is held: see settle.
    SELECT count(*) AS found, array_agg(j.place ORDER BY j.place_of) AS places, bool_or(j.tied) AS tied, min(j.queue) AS one, max(j.queue) AS other,
        min(j.session) AS session, max(j.session) AS last, array_agg(j.queue) AS queues, array_agg(j.lane) AS lanes
    INTO x FROM (
        SELECT o.*, u.o AS place_of FROM unnest(p_jobs) WITH ORDINALITY AS u (id, o) CROSS JOIN LATERAL (
            SELECT ctid AS place, key IS NOT NULL OR has_children OR line IS NOT NULL AS tied, queue, lane, coalesce(session, '') AS session
            FROM job WHERE id = u.id FOR UPDATE NOWAIT) o) j;
    IF p_alone THEN
        IF x.tied THEN
            RAISE EXCEPTION 'not all of them are plain' USING ERRCODE = 'WL005';
        END IF;
    ELSIF x.tied OR p_suspects OR NOT _have_plain_ends(p_jobs, x.one, x.other)
        OR (p_ask_queues IS NOT NULL AND (NOT _are_plain(p_ask_queues) OR EXISTS (SELECT FROM inbox))) THEN
        PERFORM _must_be_alone();
    END IF;
    IF x.found = v_count THEN
        v_sessions := CASE WHEN x.session = x.last THEN ARRAY[x.session]
            ELSE array(SELECT DISTINCT coalesce(session, '') FROM job WHERE id = ANY (p_jobs)) END;
        IF NOT EXISTS (SELECT FROM session WHERE id = x.session AND ended_at IS NULL) THEN
            x.session := NULL;
        END IF;
        FOR q IN SELECT * FROM queue WHERE name BETWEEN x.one AND x.other LOOP
            v_done := v_done + _settle_past(q, x.places, p_fences, p_runtimes, p_results, x.session, v_sessions);
        END LOOP;
    END IF;
    IF v_done < v_count THEN
        RAISE EXCEPTION 'not all of them are plain' USING ERRCODE = CASE WHEN EXISTS (
            SELECT FROM queue o WHERE o.name BETWEEN x.one AND x.other AND NOT _has_past(o)) THEN 'WL005' ELSE 'WL004' END;
    END IF;
    IF p_alone AND EXISTS (SELECT FROM queue o WHERE o.name BETWEEN x.one AND x.other AND o.laned) THEN
        PERFORM _bring_back(x.queues, x.lanes);
    END IF;
    IF p_ask_queues IS NULL THEN
        RETURN NEXT c;
        RETURN;
    END IF;
    x := _claim(ROW(p_ask_queues, p_slots, p_size, p_session, p_seq, p_visibility, p_suspects, p_max_bytes, p_draw, p_alone)::ask);
    RETURN NEXT x.head;
    IF cardinality(x.leases) > 0 THEN
        RETURN QUERY SELECT * FROM _leased(x.leases);
    END IF;
END $$;
