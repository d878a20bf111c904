-- Settle, the short way for what most calls are: jobs that are done, without errors and children, and go to the past.
--
-- Keys touched: job, past, lease, delta, timed; with lanes seat and ring; those of the claim. Cost: a few rows a job.

-- End leases of plain jobs of a queue that are done and go to the past, all at once. in: what is said of them, in the order of their
-- ids; p_results may be empty; p_session: a session that is alive; p_holder: one whose blocks of leases are locked. out: how many it could end so and, in a queue with
-- lanes, the lanes of all of them. Their rows are removed without being locked first: 3 µs a job less. So it may wait for somebody who has one of them.
CREATE OR REPLACE FUNCTION _settle_past(
    q queue, p_jobs uuid[], p_fences bigint[], p_runtimes bigint[], p_results bytea[], p_session text, p_holder text,
    OUT ended integer, OUT lanes text[]
) LANGUAGE plpgsql AS $$
DECLARE
    v_at bigint := _at();
    v_sessions text[];
    v_results boolean := cardinality(p_results) > 0;
    flat record;
    x record;
    v_first text COLLATE "C";   -- as sessions are compared where they stand
    v_last text COLLATE "C";
    v_single bigint[];
    v_in_blocks bigint[];
    v_fences bigint[];
BEGIN
    ended := 0;
    IF NOT _has_past(q)
        -- After a step back of the clock they would be forgotten already.
        OR EXISTS (SELECT FROM horizon h WHERE h.queue = q.name AND h.finished_at >= v_at) THEN
        RETURN;
    END IF;
    -- An array that is in order tells the place of a value by halves. As a variable of its own it would be copied for every row.
    SELECT p_jobs AS jobs INTO flat;
    FOR x IN WITH gone AS (
        DELETE FROM job j
        WHERE j.id = ANY (p_jobs) AND j.queue = q.name
          AND NOT j.has_children AND j.log_lines = 0 AND j.after_ids IS NULL AND j.flow = '' AND NOT j.has_memos
          AND j.key IS NULL AND j.line IS NULL
          AND ((j.state = 3 AND j.fence = p_fences[width_bucket(j.id, flat.jobs)] AND (j.session = p_session OR j.session IS NULL
                  OR EXISTS (SELECT FROM session s WHERE s.id = j.session AND s.ended_at IS NULL)))
               OR (j.state = 2 AND p_holder IS NOT NULL))   -- looked for in its blocks, below
        -- What is read by several comes first.
        RETURNING j.task, CASE j.state WHEN 3 THEN j.session ELSE p_holder END AS session, j.n, j.lane, width_bucket(j.id, flat.jobs) AS place,
            j.state = 2 AS in_block, j.id, j.priority, CASE j.state WHEN 3 THEN j.attempt ELSE j.attempt + 1 END AS attempt, j.max_attempts,
            j.crashes, j.revision, j.band, j.seq, j.accepted_at, j.due_at, p_fences[width_bucket(j.id, flat.jobs)] AS fence,
            CASE j.state WHEN 3 THEN j.claimed_at ELSE p_fences[width_bucket(j.id, flat.jobs)] END AS claimed_at, j.size, j.replays, j.parent, j.expires_at, j.mode,
            j.win, j.permille, j.message, j.headers, j.tags, j.deliveries, j.error, j.payload
    ), kept AS (
        INSERT INTO past (id, n, state, priority, attempt, max_attempts, crashes, revision, queue, lane, task, band, seq, accepted_at,
            due_at, fence, claimed_at, size, started, replays, kept, parent, expires_at, finished_at, mode, win, permille, message,
            headers, tags, deliveries, error, result, payload, slot, session, deadline)   -- see `_as_kept`
        SELECT g.id, g.n, 4, g.priority, g.attempt, g.max_attempts, g.crashes, g.revision, q.name, g.lane, g.task, g.band, g.seq,
            g.accepted_at, g.due_at, g.fence, g.claimed_at, g.size + coalesce(octet_length(p_results[g.place]), 0), true, g.replays,
            (p_results[g.place] IS NOT NULL)::integer, g.parent, g.expires_at, v_at, g.mode, g.win, g.permille, g.message, g.headers, g.tags,
            CASE WHEN g.deliveries IS NOT NULL OR g.session IS NULL THEN
                coalesce(g.deliveries[greatest(1, cardinality(g.deliveries) - 8):], '{}') ||
                ROW(g.fence, g.attempt, g.session, g.claimed_at, v_at, 'done', true, NULL, p_runtimes[g.place], NULL)::ended END,
            g.error, p_results[g.place], g.payload, q.slot, CASE WHEN g.deliveries IS NULL THEN g.session END,
            CASE WHEN g.deliveries IS NULL THEN p_runtimes[g.place] END
        FROM gone g
    ), tasks AS MATERIALIZED (
        SELECT g.task, count(*) AS n, array_agg(g.n) FILTER (WHERE NOT g.in_block) AS single, array_agg(g.n) FILTER (WHERE g.in_block) AS in_blocks,
            array_agg(g.fence) FILTER (WHERE g.in_block) AS fences, min(coalesce(g.session, '')) AS session, max(coalesce(g.session, '')) AS last,
            CASE WHEN q.laned THEN array_agg(g.lane) END AS lanes, bool_or(p_runtimes[g.place] IS NOT NULL) AS timed,
            CASE WHEN v_results THEN coalesce(sum(octet_length(p_results[g.place])), 0) ELSE 0 END AS grown
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
    SELECT * FROM tasks LOOP   -- mostly one
        ended := ended + x.n;
        lanes := lanes || x.lanes;
        v_single := v_single || x.single;
        v_in_blocks := v_in_blocks || x.in_blocks;
        v_fences := v_fences || x.fences;
        v_first := least(v_first, x.session);
        v_last := greatest(v_last, x.last);
    END LOOP;
    IF v_in_blocks IS NOT NULL AND _end_in_blocks(p_holder, v_in_blocks, v_fences) < cardinality(v_in_blocks) THEN
        RAISE EXCEPTION 'not all of them are leased so' USING ERRCODE = 'WL004';
    END IF;
    IF v_single IS NOT NULL THEN
        v_sessions := CASE WHEN v_last > v_first THEN array(
            SELECT DISTINCT l.session FROM lease l WHERE l.session BETWEEN v_first AND v_last AND l.n = ANY (v_single)) ELSE ARRAY[v_first] END;
        DELETE FROM lease WHERE session = ANY (v_sessions) AND n = ANY (v_single);
    END IF;
END $$;

-- As `_claim`: for one of before that waited for the lock while functions were renewed.
DROP FUNCTION IF EXISTS _settle_past(queue, uuid[], bigint[], bigint[], bytea[], text);
CREATE FUNCTION _settle_past(
    q queue, p_jobs uuid[], p_fences bigint[], p_runtimes bigint[], p_results bytea[], p_session text
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'functions have been renewed' USING ERRCODE = 'serialization_failure';
END $$;

-- Whether these queues have lanes, but nothing of these but clocks and leases, and nobody waits to be taken in. It stays so while the
-- lock is held.
CREATE OR REPLACE FUNCTION _have_lanes_alike(p_queues text[]) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN NOT EXISTS (
            SELECT FROM unnest(p_queues) AS u (name) WHERE NOT EXISTS (
                SELECT FROM queue q WHERE q.name = u.name AND _has_simple_lanes(q) AND NOT EXISTS (SELECT FROM lane l WHERE l.queue = q.name)))
        AND NOT EXISTS (SELECT FROM inbox) AND NOT EXISTS (SELECT FROM aftermath);
END $$;

-- in: jobs that are all done, in the order of their ids; p_alone: whether it needs the namespace to itself, as lanes and limits do;
-- p_results: empty if there are none. out: as settle; no verdicts in the head if every one was applied. Gives up: WL001 if it must be alone, WL004 if something of
-- this call, WL005 if something of its queues is more than it can do.
--
-- Where the lanes that are asked for are alike, only what is done with lanes is done alone, under a lock of their own, which all take who
-- share the namespace and touch lanes: jobs end beside others, who go on counting their leases until this commits.
DROP FUNCTION IF EXISTS settle_done(
    bigint, boolean, uuid[], bigint[], bigint[], bytea[], text[], integer, integer, text, bigint, bigint, boolean, bigint, bigint);
DROP FUNCTION IF EXISTS settle_done(
    bigint, boolean, uuid[], bigint[], bigint[], bytea[], text[], integer, integer, text, bigint, bigint, boolean, bigint, bigint, integer);
CREATE OR REPLACE FUNCTION settle_done(
    p_now bigint, p_alone boolean, p_jobs uuid[], p_fences bigint[], p_runtimes bigint[], p_results bytea[],
    p_ask_queues text[], p_slots integer, p_size integer, p_session text, p_seq bigint, p_visibility bigint,
    p_suspects boolean, p_max_bytes bigint, p_draw bigint, p_soon integer DEFAULT 0, p_by_blocks boolean DEFAULT false
) RETURNS SETOF handed LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    a ask;
    x record;
    c handed;
    q queue;
    v_queue text;
    v_session text;
    v_left integer := cardinality(p_jobs);
    v_seen text[] := '{}';
    v_freed text[] := '{}';   -- lanes in which slots were freed
    v_of text[] := '{}';      -- and their queues
    v_shares boolean := p_alone AND NOT p_suspects AND p_ask_queues IS NOT NULL AND _have_lanes_alike(p_ask_queues);
    v_patience text := current_setting('lock_timeout');
    v_holder text;   -- whose blocks of leases may be ended
BEGIN
    IF v_shares THEN
        PERFORM _begin_beside(p_now);
        IF NOT _have_lanes_alike(p_ask_queues) THEN
            RAISE EXCEPTION 'lanes have been given settings' USING ERRCODE = 'WL004';
        END IF;
    ELSIF p_alone THEN
        PERFORM _begin_alone(p_now);
    ELSE
        PERFORM _begin_beside(p_now);
        IF p_suspects OR (p_ask_queues IS NOT NULL AND (NOT _are_plain(p_ask_queues) OR EXISTS (SELECT FROM inbox))) THEN
            PERFORM _must_be_alone();
        END IF;
    END IF;
    -- Of the asker's the newest, since what is left of others may still be in the way.
    v_holder := (SELECT session FROM lease_block WHERE session = p_session ORDER BY n DESC LIMIT 1);
    IF v_holder IS NULL THEN
        v_holder := (SELECT b.session FROM job j CROSS JOIN LATERAL _lease_block_of(j.queue, j.n) b WHERE j.id = p_jobs[1] AND j.state = 2);
    END IF;
    IF v_holder IS NOT NULL THEN
        PERFORM _lock_blocks(v_holder);
        v_holder := (SELECT id FROM session WHERE id = v_holder AND ended_at IS NULL);
    END IF;
    -- Nobody is waited for long while the lock is held: see settle. Whoever had the blocks was a step itself.
    PERFORM set_config('lock_timeout', '100', true), set_config('windlass.sharing', CASE WHEN v_shares THEN 'lanes' ELSE '' END, true);
    SELECT j.queue, s.id INTO v_queue, v_session FROM job j LEFT JOIN LATERAL (
        SELECT id FROM session WHERE id = j.session AND ended_at IS NULL OFFSET 0) s ON true WHERE j.id = p_jobs[1];
    WHILE v_queue IS NOT NULL LOOP   -- mostly once
        SELECT * INTO q FROM queue WHERE name = v_queue;
        IF NOT p_alone AND v_queue <> ALL (coalesce(p_ask_queues, '{}')) AND NOT _are_plain(ARRAY[v_queue]) THEN
            PERFORM _must_be_alone();
        END IF;
        x := _settle_past(q, p_jobs, p_fences, p_runtimes, p_results, v_session, v_holder);
        v_left := v_left - x.ended;
        IF x.lanes IS NOT NULL THEN
            v_freed := v_freed || x.lanes;
            v_of := v_of || array_fill(v_queue, ARRAY[cardinality(x.lanes)]);
        END IF;
        EXIT WHEN v_left = 0;
        v_seen := v_seen || v_queue;
        SELECT min(j.queue) INTO v_queue FROM (SELECT queue FROM job WHERE id = ANY (p_jobs) OFFSET 0) j WHERE j.queue <> ALL (v_seen);
    END LOOP;
    IF v_left > 0 THEN
        RAISE EXCEPTION 'not all of them are plain' USING ERRCODE = CASE
            WHEN EXISTS (SELECT FROM queue o WHERE o.name = ANY (v_seen) AND NOT _has_past(o))
                OR EXISTS (SELECT FROM job WHERE id = ANY (p_jobs) AND (key IS NOT NULL OR has_children OR line IS NOT NULL)) THEN 'WL005'
            ELSE 'WL004' END;
    ELSIF EXISTS (SELECT FROM aftermath) AND EXISTS (SELECT FROM aftermath WHERE job = ANY (p_jobs)) THEN
        -- Settled in a caller's own transaction, which may have been waited for.
        RAISE EXCEPTION 'some of them are done already' USING ERRCODE = 'WL004';
    END IF;
    PERFORM set_config('lock_timeout', v_patience, true);
    IF v_shares THEN
        PERFORM pg_advisory_xact_lock(1464422982, 'job'::regclass::oid::integer);
    END IF;
    PERFORM _bring_back(f.queue, f.lanes) FROM (
        SELECT u.queue, array_agg(u.lane) AS lanes FROM unnest(v_of, v_freed) AS u (queue, lane) GROUP BY u.queue) f;
    IF p_ask_queues IS NULL THEN
        RETURN NEXT c;
        RETURN;
    END IF;
    a := ROW(p_ask_queues, p_slots, p_size, p_session, p_seq, p_visibility, p_suspects, p_max_bytes, p_draw, p_alone)::ask;
    x := _answer(a, p_soon, cardinality(p_jobs) >= 8);
    RETURN NEXT x.head;
    IF x.whole THEN
        RETURN QUERY SELECT * FROM _leased_in_blocks(a, x.leases, p_by_blocks);
    ELSIF x.fresh AND cardinality(x.leases) > 0 THEN
        RETURN QUERY SELECT * FROM _lease_out(a, x.leases);
    ELSIF cardinality(x.leases) > 0 THEN
        RETURN QUERY SELECT * FROM _leased(x.leases);
    END IF;
END $$;
