-- The verb enqueue, and its short way for what most calls are: jobs without keys, parents and lanes, in plain queues.
--
-- Keys touched: those of `05_enqueue.sql`; by the short ways job, ready, delta and event_in, which are only inserted into. Cost:
-- O(jobs log n); by the short ways two rows a job and one per task.
--
-- Numbers of jobs and places are drawn in steps of 1,024, so that one draw is enough for the jobs of a call that are alike.

-- Whether one of these ids may have been sent before, but for jobs that are still there, which nobody can be twice. p_first: the
-- smallest of them. Ids grow with time, so mostly it is enough to look at the largest that is there.
CREATE OR REPLACE FUNCTION _may_be_known(p_ids uuid[], p_first uuid, p_slots smallint[]) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    -- Each by itself: a statement pays for all the tables that it might look at.
    IF p_first <= (SELECT id FROM absorbed ORDER BY id DESC LIMIT 1) AND EXISTS (SELECT FROM absorbed WHERE id = ANY (p_ids)) THEN
        RETURN true;
    ELSIF _is_beyond_past(p_first, p_slots) THEN
        RETURN false;
    END IF;
    RETURN EXISTS (SELECT FROM past WHERE slot = ANY (p_slots) AND id = ANY (p_ids));
END $$;

-- in: jobs without keys and parents, as arrays of their columns. Those of values that no job is without may be cut short: then the
-- first element stands for all. Those of values that a job may be without (run_at, expires, headers, tags) are whole or empty. p_alone: whether it has to have the namespace to itself, as lanes do; p_first: the
-- smallest of the ids. out: nothing; all of them are created. Gives up: WL001 if it must be alone; WL004, or a unique violation, if
-- an id was sent before or a queue is not known; WL005 if a queue is more than it can do. Cost: two rows a job and one per task; a
-- look at each lane.
CREATE OR REPLACE FUNCTION enqueue_plain(
    p_now bigint, p_alone boolean, p_first uuid, p_ids uuid[], p_payloads bytea[], p_tasks text[], p_queues text[], p_lanes text[],
    p_priorities smallint[], p_delays bigint[], p_run_at bigint[], p_expires bigint[], p_headers bytea[], p_tags bytea[],
    p_max_attempts integer[], p_revisions bigint[], p_flows text[]
) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_at bigint;
    v_task text := p_tasks[1];
    v_queue text := p_queues[1];
    v_lane text := coalesce(p_lanes[1], '');
    v_priority smallint := p_priorities[1];
    v_delay bigint := p_delays[1];
    v_max_attempts integer := p_max_attempts[1];
    v_revision bigint := p_revisions[1];
    v_flow text := p_flows[1];
    x record;
BEGIN
    IF p_alone THEN
        PERFORM _begin_alone(p_now);
    ELSE
        PERFORM pg_advisory_xact_lock_shared(1464422980, 'job'::regclass::oid::integer);
    END IF;
    v_at := _seen_at(p_now);
    SELECT count(*) AS known, bool_or(q.sequence) AS lined, bool_or(q.laned) AS laned, bool_or(q.age_step IS NOT NULL OR q.bands IS NOT NULL) AS banded,
        bool_or(q.emit = 2) AS emits, (SELECT max_size IS NOT NULL FROM meta) AS bounded, (SELECT slots FROM meta) AS slots
    INTO x FROM queue q WHERE q.name = ANY (p_queues);
    IF x.known < (CASE cardinality(p_queues) WHEN 1 THEN 1 ELSE (SELECT count(DISTINCT u) FROM unnest(p_queues) u) END) THEN
        RAISE EXCEPTION 'a queue is not known' USING ERRCODE = 'WL004';
    ELSIF x.bounded OR x.lined THEN
        RAISE EXCEPTION 'a queue has a line, or the namespace a bound' USING ERRCODE = 'WL005';
    ELSIF NOT p_alone AND (x.laned OR cardinality(p_lanes) > 0) THEN
        PERFORM _must_be_alone();
    ELSIF cardinality(p_lanes) > 0 THEN
        PERFORM _become_laned(u.queue) FROM (
            SELECT DISTINCT coalesce(w.queue, v_queue) AS queue FROM unnest(p_queues, p_lanes) AS w (queue, lane) WHERE coalesce(w.lane, v_lane) <> '') u;
    END IF;
    WITH filed AS MATERIALIZED (
        SELECT g.*, CASE WHEN g.due > v_at THEN 1 ELSE 2 END::smallint AS state, octet_length(g.payload) AS size,
            CASE WHEN g.due > v_at THEN 0 WHEN NOT x.banded THEN -g.priority
                ELSE (SELECT _band_of(q, g.priority, g.due) FROM queue q WHERE q.name = g.queue) END AS band
        FROM (
            SELECT u.id, nextval('number') * 1024 AS n, coalesce(u.task, v_task) AS task, coalesce(u.queue, v_queue) AS queue,
                coalesce(u.lane, v_lane) AS lane, coalesce(u.priority, v_priority) AS priority, u.payload,
                CASE WHEN u.run_at IS NULL THEN v_at + coalesce(u.delay, v_delay) ELSE greatest(v_at, u.run_at) END AS due,
                v_at + u.expires AS expires_at, u.headers, u.tags, coalesce(u.max_attempts, v_max_attempts) AS max_attempts,
                coalesce(u.revision, v_revision) AS revision, coalesce(u.flow, v_flow) AS flow
            FROM unnest(p_ids, p_payloads, p_tasks, p_queues, p_lanes, p_priorities, p_delays, p_run_at, p_expires, p_headers, p_tags,
                p_max_attempts, p_revisions, p_flows)
                AS u (id, payload, task, queue, lane, priority, delay, run_at, expires, headers, tags, max_attempts, revision, flow)
            OFFSET 0) g
    ), made AS (
        INSERT INTO job (id, n, seq, state, priority, band, max_attempts, revision, queue, lane, task, accepted_at, due_at, size,
            flow, expires_at, headers, tags, payload, timer, waits)
        SELECT f.id, f.n, f.n, f.state, f.priority, f.band, f.max_attempts, f.revision, f.queue, f.lane, f.task, v_at, f.due, f.size,
            f.flow, f.expires_at, f.headers, f.tags, f.payload, f.expires_at, nullif(f.state, 2)
        FROM filed f   -- in the order of the call: two who send the same ids mostly do so in one order; else one of them begins anew
    ), placed AS (
        INSERT INTO ready (queue, lane, band, seq, n, task, size, expires_at, last, suspect)
        SELECT f.queue, f.lane, f.band, f.n, f.n, f.task, f.size, f.expires_at, f.max_attempts <= 1, false FROM filed f WHERE f.state = 2
    )
    INSERT INTO delta (queue, task, state, n, bytes)
    SELECT f.queue, f.task, f.state, count(*), sum(f.size) FROM filed f GROUP BY f.queue, f.task, f.state;
    -- Behind the insert, which has waited for whoever moves a job with such an id to the past: a look before it finds the job in neither.
    IF _may_be_known(p_ids, p_first, x.slots) THEN
        RAISE EXCEPTION 'an id was sent before' USING ERRCODE = 'WL004';
    END IF;
    IF p_alone THEN
        PERFORM _enter(p_queues, p_lanes, CASE WHEN cardinality(p_priorities) = 1 AND NOT x.banded THEN -v_priority END);
    END IF;
    IF x.emits THEN
        INSERT INTO event_in (at, job, task, queue, lane, move, after, attempt, fence)
        SELECT v_at, j.id, j.task, j.queue, j.lane, 'enqueue', j.state, 0, 0
        FROM job j JOIN queue q ON q.name = j.queue AND q.emit = 2 WHERE j.id = ANY (p_ids) ORDER BY j.n;
    END IF;
    PERFORM _wake(p_queues);
END $$;

-- Let lanes in which there are new jobs into their rings. p_band: that of all these jobs, or NULL if they have several: lanes that are
-- there already need no look. Arrays as those of `enqueue_plain`.
CREATE OR REPLACE FUNCTION _enter(p_queues text[], p_lanes text[], p_band bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _refresh(l.queue, l.lane) FROM (
        SELECT DISTINCT coalesce(u.queue, p_queues[1]) AS queue, coalesce(u.lane, p_lanes[1], '') AS lane FROM unnest(p_queues, p_lanes) AS u (queue, lane)
    ) l CROSS JOIN LATERAL (SELECT one_ring FROM queue WHERE name = l.queue AND laned OFFSET 0) q
    WHERE NOT EXISTS (
        SELECT FROM seat s
        WHERE s.queue = l.queue AND s.lane = l.lane AND s.band = CASE WHEN q.one_ring THEN 0 ELSE p_band END AND s.due IS NOT NULL OFFSET 0);
END $$;

-- Put jobs of one call that are alike, without lanes, into their places, and count them. p_jobs: their numbers; p_sizes: the bytes of
-- their payloads; p_unlimited, p_has_blocks: of their queue.
CREATE OR REPLACE FUNCTION _file_alike(
    p_jobs bigint[], p_sizes integer[], p_task text, p_queue text, p_band bigint, p_state smallint, p_expires_at bigint,
    p_max_attempts integer, p_unlimited boolean, p_has_blocks boolean
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_block integer := 1;   -- jobs to a row of `ready`
BEGIN
    IF p_unlimited AND p_state = 2 AND _block(cardinality(p_jobs)) > 1 THEN
        v_block := _block(cardinality(p_jobs));
        IF p_has_blocks IS NOT TRUE THEN
            UPDATE queue SET has_blocks = true WHERE name = p_queue AND has_blocks IS NOT TRUE;
        END IF;
    END IF;
    WITH placed AS (
        INSERT INTO ready (queue, lane, band, seq, n, task, size, expires_at, last, suspect, jobs, sizes)
        SELECT p_queue, '', p_band, p_jobs[i], p_jobs[i], p_task, (SELECT sum(u.size) FROM unnest(p_sizes[i : i + v_block - 1]) AS u (size)),
            p_expires_at, p_max_attempts <= 1, false, CASE WHEN v_block > 1 THEN p_jobs[i : i + v_block - 1] END,
            CASE WHEN v_block > 1 THEN p_sizes[i : i + v_block - 1] END
        FROM generate_series(1, cardinality(p_jobs), v_block) AS i WHERE p_state = 2
    )
    INSERT INTO delta (queue, task, state, n, bytes)
    SELECT p_queue, p_task, p_state, cardinality(p_jobs), sum(u.size) FROM unnest(p_sizes) AS u (size);
END $$;

-- The same for jobs without lanes that differ in nothing but their ids and payloads, beside others, and so for less of the server
-- (`docs/decisions/0007-postgres.md`). p_last: whether nothing follows in its transaction; who listens is told then, since a
-- bell that was rung in vain keeps quiet for others, too. out, gives up: as `enqueue_plain`.
CREATE OR REPLACE FUNCTION enqueue_alike(
    p_now bigint, p_last boolean, p_first uuid, p_ids uuid[], p_payloads bytea[], p_task text, p_queue text, p_priority smallint,
    p_delay bigint, p_run_at bigint, p_expires bigint, p_headers bytea, p_tags bytea, p_max_attempts integer, p_revision bigint,
    p_flow text
) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    x record;
    v_at bigint := coalesce(p_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
    v_due bigint;
    v_band bigint := -p_priority;
    v_expires_at bigint;
    v_state smallint := 2;
    v_waits smallint;
    v_n bigint;
    v_jobs bigint[];
    v_sizes integer[];
    v_done boolean;
BEGIN
    v_done := pg_advisory_xact_lock_shared(1464422980, 'job'::regclass::oid::integer) IS NULL;   -- an expression: 8 µs less than PERFORM
    SELECT q.laned OR q.sequence OR m.max_size IS NOT NULL AS busy, q.age_step IS NOT NULL OR q.bands IS NOT NULL AS banded,
        q.unlimited, q.has_blocks, q.emit = 2 AS emits, m.slots, m.mark, m.session_ttl AS ttl,
        p_first <= (SELECT id FROM absorbed ORDER BY id DESC LIMIT 1) AS old
    INTO x FROM queue q, meta m WHERE q.name = p_queue;
    IF x.busy IS NOT FALSE THEN
        PERFORM _must_be_alone();
    END IF;
    IF v_at + x.ttl >= x.mark THEN   -- as `_begin`
        v_at := greatest(v_at, x.mark);
    END IF;
    v_due := CASE WHEN p_run_at IS NULL THEN v_at + p_delay ELSE greatest(v_at, p_run_at) END;
    v_expires_at := v_at + p_expires;
    IF v_due > v_at THEN
        v_state := 1;
        v_waits := 1;
        v_band := 0;
    ELSIF x.banded THEN
        v_band := (SELECT _band_of(q, p_priority, v_due) FROM queue q WHERE q.name = p_queue);
    END IF;
    IF cardinality(p_ids) > 1024 THEN
        RAISE EXCEPTION 'more jobs than numbers of one draw' USING ERRCODE = 'WL005';
    END IF;
    -- First their numbers, drawn at once, then their rows: 0.4 µs a job less than to draw each and to ask for those of the rows that were made.
    v_n := nextval('number') * 1024;
    v_jobs := array(SELECT generate_series(v_n, v_n + cardinality(p_ids) - 1));
    v_sizes := array(SELECT octet_length(unnest(p_payloads)));
    INSERT INTO job (id, n, seq, state, priority, band, max_attempts, revision, queue, lane, task, accepted_at, due_at, size,
        flow, expires_at, headers, tags, payload, timer, waits)
    SELECT u.id, u.n, u.n, v_state, p_priority, v_band, p_max_attempts, p_revision, p_queue, '', p_task, v_at, v_due,
        octet_length(u.payload), p_flow, v_expires_at, p_headers, p_tags, u.payload, v_expires_at, v_waits
    FROM (SELECT unnest(p_ids) AS id, unnest(p_payloads) AS payload, unnest(v_jobs) AS n OFFSET 0) u;
    PERFORM _file_alike(v_jobs, v_sizes, p_task, p_queue, v_band, v_state, v_expires_at, p_max_attempts, x.unlimited, x.has_blocks);
    -- Behind the insert, as in `enqueue_plain`.
    IF (x.old OR NOT _is_beyond_past(p_first, x.slots)) AND _may_be_known(p_ids, p_first, x.slots) THEN
        RAISE EXCEPTION 'an id was sent before' USING ERRCODE = 'WL004';
    END IF;
    IF x.emits THEN
        INSERT INTO event_in (at, job, task, queue, lane, move, after, attempt, fence)
        SELECT v_at, j.id, j.task, j.queue, j.lane, 'enqueue', j.state, 0, 0 FROM job j WHERE j.id = ANY (p_ids) ORDER BY j.n;
    END IF;
    IF p_last THEN
        PERFORM _wake(ARRAY[p_queue]);
    END IF;
END $$;

-- The same for one job, value by value: 190 µs of the server a call instead of 430 by arrays.
CREATE OR REPLACE FUNCTION enqueue_one(
    p_now bigint, p_id uuid, p_payload bytea, p_task text, p_queue text, p_priority smallint, p_delay bigint, p_run_at bigint,
    p_expires bigint, p_headers bytea, p_tags bytea, p_max_attempts integer, p_revision bigint, p_flow text
) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    x record;
    v_at bigint := coalesce(p_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
    v_n bigint;
    v_due bigint;
    v_band bigint := -p_priority;
    v_size integer := octet_length(p_payload);
    v_expires_at bigint;
    v_state smallint := 2;
    v_waits smallint;
    v_done boolean;
BEGIN
    v_done := pg_advisory_xact_lock_shared(1464422980, 'job'::regclass::oid::integer) IS NULL;   -- as above
    SELECT q.laned OR q.sequence OR m.max_size IS NOT NULL AS busy, q.age_step IS NOT NULL OR q.bands IS NOT NULL AS banded,
        q.emit = 2 AS emits, m.slots, m.mark, m.session_ttl AS ttl,
        EXISTS (SELECT FROM absorbed WHERE id = p_id) AS known
    INTO x FROM queue q, meta m WHERE q.name = p_queue;
    IF x.busy IS NOT FALSE THEN
        PERFORM _must_be_alone();
    END IF;
    IF v_at + x.ttl >= x.mark THEN   -- as `_begin`
        v_at := greatest(v_at, x.mark);
    END IF;
    v_due := CASE WHEN p_run_at IS NULL THEN v_at + p_delay ELSE greatest(v_at, p_run_at) END;
    v_expires_at := v_at + p_expires;
    IF v_due > v_at THEN
        v_state := 1;
        v_waits := 1;
        v_band := 0;
    ELSIF x.banded THEN
        v_band := (SELECT _band_of(q, p_priority, v_due) FROM queue q WHERE q.name = p_queue);
    END IF;
    v_n := nextval('number') * 1024;
    WITH made AS (
        INSERT INTO job (id, n, seq, state, priority, band, max_attempts, revision, queue, lane, task, accepted_at, due_at, size, flow,
            expires_at, headers, tags, payload, timer, waits)
        VALUES (p_id, v_n, v_n, v_state, p_priority, v_band, p_max_attempts, p_revision, p_queue, '', p_task, v_at, v_due, v_size, p_flow,
            v_expires_at, p_headers, p_tags, p_payload, v_expires_at, v_waits)
    ), placed AS (
        INSERT INTO ready (queue, lane, band, seq, n, task, size, expires_at, last, suspect)
        SELECT p_queue, '', v_band, v_n, v_n, p_task, v_size, v_expires_at, p_max_attempts <= 1, false WHERE v_state = 2
    )
    INSERT INTO delta (queue, task, state, n, bytes) VALUES (p_queue, p_task, v_state, 1, v_size);
    -- Behind the insert, as in `enqueue_plain`.
    IF x.known OR (NOT _is_beyond_past(p_id, x.slots) AND (_past(p_id)).n IS NOT NULL) THEN
        RAISE EXCEPTION 'an id was sent before' USING ERRCODE = 'WL004';
    END IF;
    IF x.emits THEN
        INSERT INTO event_in (at, job, task, queue, lane, move, after, attempt, fence)
        VALUES (v_at, p_id, p_task, p_queue, '', 'enqueue', v_state, 0, 0);
    END IF;
    IF pg_try_advisory_lock(1464422981, 'job'::regclass::oid::integer) THEN   -- as `_wake`, where nobody listens
        v_done := pg_advisory_unlock(1464422981, 'job'::regclass::oid::integer);
    ELSE
        PERFORM _wake(ARRAY[p_queue]);
    END IF;
END $$;

-- in: groups as one list of jobs; p_ends: where each group ends.
-- out: one receipt a job, in their order.
CREATE OR REPLACE FUNCTION enqueue(
    p_now bigint, p_ends integer[],
    p_ids uuid[], p_tasks text[], p_queues text[], p_lanes text[], p_priorities smallint[], p_keys text[], p_modes smallint[],
    p_wins bigint[], p_delays bigint[], p_run_at bigint[], p_expires bigint[], p_payloads bytea[], p_headers bytea[],
    p_tags bytea[], p_max_attempts integer[], p_revisions bigint[], p_flows text[], p_edge_of integer[],
    p_edge_parents uuid[], p_edge_on smallint[]
) RETURNS SETOF receipt LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_jobs asked[];
    v_from integer := 1;
    v_end integer;
BEGIN
    PERFORM _begin_alone(p_now);
    v_jobs := _asked(p_ids, p_tasks, p_queues, p_lanes, p_priorities, p_keys, p_modes, p_wins, p_delays, p_run_at,
        p_expires, p_payloads, p_headers, p_tags, p_max_attempts, p_revisions, p_flows, p_edge_of, p_edge_parents, p_edge_on);
    FOREACH v_end IN ARRAY p_ends LOOP
        RETURN QUERY SELECT * FROM _enqueue_group(v_jobs[v_from : v_end]);
        v_from := v_end + 1;
    END LOOP;
    PERFORM _wake_filled();
END $$;
