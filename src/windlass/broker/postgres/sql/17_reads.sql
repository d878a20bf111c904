-- Reads: jobs, listings, counts, lanes, sessions, ends, events. Each sees one moment (STABLE), takes no lock and, but
-- for numbering events, writes nothing. Cost: bounded by rows examined.

-- Give up a read that does not see yet what has been committed: the caller lets it be taken in, and reads again without
-- insisting, since more may have come meanwhile.
CREATE OR REPLACE FUNCTION _sees_all(p_insists boolean) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF p_insists AND (EXISTS (SELECT FROM inbox) OR EXISTS (SELECT FROM aftermath)) THEN
        RAISE EXCEPTION 'something has yet to be taken in' USING ERRCODE = 'WL002';
    END IF;
    RETURN true;
END $$;

-- in: a job. out: it as listings show it.
CREATE OR REPLACE FUNCTION _shown(j job) RETURNS job_row LANGUAGE plpgsql STABLE AS $$
DECLARE
    r job_row;
BEGIN
    r.id := j.id;
    r.n := j.n;
    r.task := j.task;
    r.queue := j.queue;
    r.lane := j.lane;
    r.priority := j.priority;
    r.state := j.state;
    r.reason := j.reason;
    r.attempt := j.attempt;
    r.max_attempts := j.max_attempts;
    r.crashes := j.crashes;
    r.fence := j.fence;
    r.key := j.key;
    r.tags := j.tags;
    r.flow := j.flow;
    r.parent := j.parent;
    r.revision := j.revision;
    r.accepted_at := j.accepted_at;
    r.due_at := j.due_at;
    r.expires_at := j.expires_at;
    r.finished_at := j.finished_at;
    r.session := j.session;
    r.cancel_requested := j.cancel_requested;
    r.hold_key := j.hold_key;
    r.hold_reason := j.hold_reason;
    r.held_since := j.held_since;
    r.held_times := j.held_times;
    r.waiting_for := j.waiting_for;
    r.replays := j.replays;
    r.permille := j.permille;
    r.message := j.message;
    r.pruned := j.pruned_until IS NOT NULL;
    RETURN r;
END $$;

-- in: ids. out: one row for each that is known, with its place (from 1), in order.
CREATE OR REPLACE FUNCTION get(p_insists boolean, p_now bigint, p_jobs uuid[]) RETURNS SETOF job_row
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    j job;
    r job_row;
    v_at bigint := _seen_at(p_now);
BEGIN
    PERFORM _sees_all(p_insists);
    FOR v_i IN 1 .. cardinality(p_jobs) LOOP
        j := _load(p_jobs[v_i]);
        CONTINUE WHEN j.n IS NULL OR j.pruned_until <= v_at;
        r := _shown(j);
        r.place := v_i;
        IF _has_dead_parent(j) THEN
            r.reason := 'parent dead';
        END IF;
        r.payload := j.payload;
        r.headers := j.headers;
        r.after_ids := j.after_ids;
        r.after_on := j.after_on;
        r.result := j.result;
        r.error := j.error;
        r.history := to_jsonb(j.deliveries)::text;
        IF j.log_lines > 0 THEN
            r.lines := array(SELECT l.line FROM log l WHERE l.n = j.n ORDER BY l.i);
        END IF;
        IF j.has_memos THEN
            r.memos := array(SELECT m.name::text FROM memo m WHERE m.n = j.n ORDER BY m.name);
        END IF;
        RETURN NEXT r;
    END LOOP;
END $$;

-- in: filters (NULL: any), the arrival before which to go on (NULL: from the newest). out: the head (no id; n: where to go
-- on, NULL at the end), then the jobs, newest first. A flow and dead jobs are found by index; other filters are applied
-- to the rows examined, at most p_rows.
CREATE OR REPLACE FUNCTION list(
    p_insists boolean, p_queue text, p_states smallint[], p_task text, p_lane text, p_flow text, p_after bigint, p_limit integer, p_rows integer
) RETURNS SETOF job_row LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    j job;
    c refcursor;
    v_head job_row;
    v_found job_row[] := '{}';
    v_examined integer := 0;
    v_last bigint;
    v_after bigint := coalesce(p_after, 9223372036854775807);
    v_segments smallint[];
BEGIN
    PERFORM _sees_all(p_insists);
    IF p_flow <> '' THEN
        OPEN c FOR SELECT * FROM job WHERE flow = p_flow AND flow <> '' AND n < v_after AND pruned_until IS NULL
            ORDER BY n DESC LIMIT p_rows + 1;
    ELSIF p_states = ARRAY[STATE_DEAD]::smallint[] THEN
        OPEN c FOR SELECT * FROM job WHERE kept = KEPT_DEAD AND n < v_after AND pruned_until IS NULL ORDER BY n DESC LIMIT p_rows + 1;
    ELSE
        v_segments := (SELECT segments FROM meta);
        OPEN c FOR
            SELECT * FROM (
                (SELECT * FROM job WHERE n < v_after AND pruned_until IS NULL ORDER BY n DESC LIMIT p_rows + 1)
                UNION ALL
                (SELECT p.id, p.n, CASE WHEN _is_behind(p.queue, p.kept, p.finished_at, p.n) THEN -1 ELSE p.state END::smallint, p.priority, p.attempt,
                    p.max_attempts, p.crashes, p.revision, p.queue, p.lane, p.task, p.band, p.seq, p.accepted_at, p.due_at, p.fence,
                    p.claimed_at, p.size, p.started, p.cancel_requested, p.has_children, p.has_memos, p.waiting_for, p.replays,
                    p.log_lines, p.kept, p.reason, p.parent, p.flow, p.line, p.expires_at, NULL::text, NULL::bigint,   -- session and deadline: see `_as_kept`
                    p.finished_at, p.pruned_until, p.key, p.mode, p.win, p.hold_key, p.hold_reason, p.held_since, p.held_times,
                    p.permille, p.message, p.after_ids, p.after_on, p.headers, p.tags, p.deliveries, p.error, p.result, p.payload,
                    p.segment, p.timer, p.waits
                 FROM past p WHERE p.segment = ANY (v_segments) AND p.n < v_after ORDER BY p.n DESC LIMIT p_rows + 1)) w
            ORDER BY n DESC LIMIT p_rows + 1;
    END IF;
    LOOP
        FETCH c INTO j;
        EXIT WHEN NOT FOUND;
        IF cardinality(v_found) = p_limit OR v_examined = p_rows THEN
            v_head.n := v_last;
            EXIT;
        END IF;
        v_examined := v_examined + 1;
        v_last := j.n;
        j := _as_leased(j);
        IF j.state = ANY (p_states) AND (p_queue IS NULL OR j.queue = p_queue) AND (p_task IS NULL OR j.task = p_task)
            AND (p_lane IS NULL OR j.lane = p_lane) AND (p_flow IS NULL OR j.flow = p_flow) THEN
            v_found := v_found || _shown(j);
        END IF;
    END LOOP;
    CLOSE c;
    RETURN NEXT v_head;
    RETURN QUERY SELECT * FROM unnest(v_found);
END $$;

-- out: how many jobs by queue, task and state; by queue (no task) for how long its oldest ready job has been due (the
-- oldest of the first hundred, in a queue with lanes of the first twenty of each: an index for it would cost every enqueue); and the queues that
-- are paused (no number).
CREATE OR REPLACE FUNCTION counts(p_insists boolean, p_now bigint, OUT queue text, OUT task text, OUT state smallint, OUT n bigint)
RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM _sees_all(p_insists);
    RETURN QUERY
    SELECT c.queue::text, c.task::text, c.state, sum(c.n)::bigint
    FROM (SELECT t.queue, t.task, t.state, t.n FROM total t UNION ALL
          SELECT d.queue, d.task, d.state, d.n FROM delta d WHERE d.i > (SELECT m.cleared FROM meta m)) c
    GROUP BY 1, 2, 3 HAVING sum(c.n) <> 0
    UNION ALL
    SELECT q.name::text, NULL::text, NULL::smallint, greatest(0, _seen_at(p_now) - min(o.due_at))
    FROM queue q
    CROSS JOIN LATERAL (SELECT DISTINCT u.lane FROM unnest(_lanes_in_use(q.name)) u (lane) LIMIT 1000) l
    CROSS JOIN LATERAL (
        SELECT (SELECT j.due_at FROM job j WHERE j.n = r.n) AS due_at FROM ready r WHERE r.queue = q.name AND r.lane = l.lane
        ORDER BY r.band, r.seq LIMIT CASE WHEN q.laned THEN 20 ELSE 100 END) o
    GROUP BY q.name
    UNION ALL
    SELECT q.name::text, NULL::text, NULL::smallint, NULL::bigint FROM queue q WHERE q.paused;
END $$;

-- The lanes of a queue that have ready or running jobs, settings, or are paused, by name; one more than asked for.
CREATE OR REPLACE FUNCTION lanes(
    p_now bigint, p_queue text, p_after text, p_limit integer, OUT name text, OUT weight bigint, OUT ready bigint,
    OUT running bigint, OUT lag bigint, OUT concurrency bigint, OUT tokens bigint, OUT parked text, OUT paused boolean
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    q queue;
    l lane;
    v_at bigint := _seen_at(p_now);
BEGIN
    SELECT * INTO q FROM queue o WHERE o.name = p_queue;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    FOR name IN
        SELECT w.name FROM (
            SELECT unnest(_lanes_in_use(p_queue)) COLLATE "C" AS name
            UNION SELECT o.name FROM lane o WHERE o.queue = p_queue AND o.paused
            UNION SELECT d.lane FROM document d WHERE d.kind = 'lane' AND d.name = p_queue) w
        WHERE p_after IS NULL OR w.name > p_after COLLATE "C"
        ORDER BY w.name LIMIT p_limit + 1
    LOOP
        ready := (SELECT coalesce(sum(r.width), 0) FROM ready r WHERE r.queue = p_queue AND r.lane = lanes.name);
        running := (SELECT coalesce(sum(r.remaining), 0) FROM lease r WHERE r.queue = p_queue AND r.lane = lanes.name);
        l := _lane(q, name);
        weight := l.weight;
        concurrency := l.concurrency;
        paused := l.paused;
        lag := coalesce((
            SELECT max(greatest(0, s.clock - r.time)) FROM seat s JOIN ring r ON r.queue = s.queue AND r.band = s.band
            WHERE s.queue = p_queue AND s.lane = l.name), 0);
        tokens := CASE WHEN l.rate_count IS NULL THEN NULL WHEN l.level IS NULL THEN l.rate_size
            ELSE _refilled(l.level, l.level_at, l.level_per, l.rate_count, l.rate_per, l.rate_size, v_at) / l.rate_per END;
        parked := CASE WHEN ready > 0 THEN _parked(l, v_at) END;
        RETURN NEXT;
    END LOOP;
END $$;

-- in: the flow to go on behind ("": the first). out: the flows that have an unfinished job, by name: whether something of it goes on by
-- itself, is held, is dead. Each is a few seeks of an index. No sorts: with statistics of a table that was empty, reading all jobs of
-- flows (`job_flow`) and sorting them looks as cheap.
CREATE OR REPLACE FUNCTION unfinished_flows(
    p_insists boolean, p_after text, p_limit integer, OUT flow text, OUT moving boolean, OUT held boolean, OUT dead boolean
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET enable_sort = off SET enable_incremental_sort = off AS $$
DECLARE
    v_waits smallint;
    v_hold text;
    v_flow text COLLATE "C" := p_after;
BEGIN
    PERFORM _sees_all(p_insists);
    FOR v_i IN 1 .. p_limit LOOP
        SELECT j.flow INTO v_flow FROM job j WHERE j.flow > v_flow AND j.flow <> '' AND j.finished_at IS NULL
            ORDER BY j.flow, j.waits, j.hold_key LIMIT 1;
        EXIT WHEN NOT FOUND;
        -- Blocked ones come first, then scheduled ones (held, then others), last those that are ready or running.
        SELECT j.waits, j.hold_key INTO v_waits, v_hold FROM job j WHERE j.flow = v_flow AND j.flow <> '' AND j.finished_at IS NULL
            ORDER BY j.flow DESC, j.waits DESC, j.hold_key DESC LIMIT 1;
        flow := v_flow;
        moving := v_waits IS NULL OR (v_waits = 1 AND v_hold IS NULL);
        held := (SELECT j.hold_key FROM job j WHERE j.flow = v_flow AND j.flow <> '' AND j.finished_at IS NULL AND j.waits = STATE_SCHEDULED
            ORDER BY j.hold_key LIMIT 1) IS NOT NULL;
        dead := (SELECT j.n FROM job j WHERE j.flow = v_flow AND j.flow <> '' AND j.kept = KEPT_DEAD AND j.pruned_until IS NULL
            ORDER BY j.finished_at LIMIT 1) IS NOT NULL;
        RETURN NEXT;
    END LOOP;
END $$;

-- Sessions by id, from behind the one given.
CREATE OR REPLACE FUNCTION sessions(
    p_after text, p_limit integer, OUT id text, OUT info bytea, OUT alive boolean, OUT opened_at bigint, OUT silent_for bigint,
    OUT leases bigint, OUT memory bigint, OUT cause bytea
) RETURNS SETOF record LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT s.id, s.info, s.ended_at IS NULL, s.opened_at, CASE WHEN s.ended_at IS NULL THEN greatest(0, m.live - s.seen) ELSE s.silent_for END,
        (SELECT coalesce(sum(l.remaining), 0) FROM lease l WHERE l.session = s.id), s.memory, s.cause
    FROM session s, meta m WHERE s.id > p_after COLLATE "C" ORDER BY s.id LIMIT p_limit
$$;

-- in: ids. out: those that have finished, with their place, in order.
CREATE OR REPLACE FUNCTION finished(
    p_now bigint, p_jobs uuid[], OUT place bigint, OUT state smallint, OUT reason text, OUT result bytea, OUT error bytea
) RETURNS SETOF record LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT u.o, j.state, j.reason, j.result, j.error
    FROM unnest(p_jobs) WITH ORDINALITY AS u (id, o) CROSS JOIN LATERAL (SELECT * FROM job WHERE id = u.id OFFSET 0) j
    WHERE j.state >= STATE_DONE AND (j.pruned_until IS NULL OR j.pruned_until > _seen_at(p_now))
    UNION ALL
    SELECT u.o, p.state, p.reason, p.result, p.error
    FROM unnest(p_jobs) WITH ORDINALITY AS u (id, o) CROSS JOIN LATERAL _past(u.id) p
    WHERE p.n IS NOT NULL AND NOT EXISTS (SELECT FROM job j WHERE j.id = u.id OFFSET 0)
      AND (p.pruned_until IS NULL OR p.pruned_until > _seen_at(p_now))
    ORDER BY 1
$$;

-- in: the number to go on at (NULL: the oldest; negative: after the newest). out: the head (i: where to go on; gap: events
-- were dropped before), then events in order. Numbers what has been committed since.
CREATE OR REPLACE FUNCTION events(
    p_from bigint, p_limit integer, OUT gap boolean, OUT i bigint, OUT at bigint, OUT job uuid, OUT task text, OUT queue text,
    OUT lane text, OUT move text, OUT before smallint, OUT after smallint, OUT reason text, OUT outcome text,
    OUT attempt integer, OUT fence bigint, OUT runtime bigint, OUT waited bigint
) RETURNS SETOF record LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_next bigint;
    v_oldest bigint;
    v_from bigint;
BEGIN
    PERFORM _number_events();
    SELECT e.next INTO v_next FROM event_end e;
    v_oldest := coalesce((SELECT min(e.i) FROM event e), v_next);
    v_from := greatest(v_oldest, CASE WHEN p_from < 0 THEN v_next ELSE coalesce(p_from, v_oldest) END);
    gap := p_from >= 0 AND p_from < v_oldest;
    i := greatest(v_from, least(v_from + p_limit, v_next));
    RETURN NEXT;
    RETURN QUERY SELECT NULL::boolean, e.i, e.at, e.job, e.task, e.queue, e.lane, e.move, e.before, e.after, e.reason, e.outcome,
        e.attempt, e.fence, e.runtime, e.waited
        FROM event e WHERE e.i >= v_from AND e.i < v_from + p_limit ORDER BY e.i;
END $$;
