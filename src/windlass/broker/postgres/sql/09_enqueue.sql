-- The verb enqueue.
--
-- Two bodies. `_accept_many` files jobs that nothing ties to others, all at once. `_accept` (`08_accept.sql`) takes them one by one, with keys,
-- parents and refusals. Keys touched: those of `08_accept.sql`. Cost: O(jobs log n).

-- in: groups as one list of jobs, column by column; p_ends: where each group ends. A column in which all jobs are alike has one element, which stands
-- for all, or none. Edges are flat, each with the place of its child (from 1).
-- out: a receipt a job, in their order; no row at all if every job was created.
CREATE OR REPLACE FUNCTION enqueue(
    p_now bigint, p_ends integer[],
    p_ids uuid[], p_tasks text[], p_queues text[], p_lanes text[], p_priorities smallint[], p_keys text[], p_modes smallint[],
    p_wins bigint[], p_delays bigint[], p_run_at bigint[], p_expires bigint[], p_payloads bytea[], p_headers bytea[],
    p_tags bytea[], p_max_attempts integer[], p_revisions bigint[], p_flows text[], p_edge_of integer[],
    p_edge_parents uuid[], p_edge_on smallint[]
) RETURNS SETOF receipt LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_many boolean := p_keys = '{}' AND p_edge_of = '{}';
    v_alone boolean := NOT v_many OR _touches_lanes(p_queues, p_lanes);
    v_receipts receipt[];
BEGIN
    LOOP   -- at most twice
        BEGIN
            IF v_alone THEN
                PERFORM _begin_alone(p_now);
            ELSE
                PERFORM _begin_beside(p_now);
            END IF;
            IF v_many THEN
                PERFORM _accept_many(v_alone, p_ids, p_tasks, p_queues, p_lanes, p_priorities, p_delays, p_run_at, p_expires, p_payloads,
                    p_headers, p_tags, p_max_attempts, p_revisions, p_flows);
            ELSE
                v_receipts := _accept_groups(p_ends, _asked(p_ids, p_tasks, p_queues, p_lanes, p_priorities, p_keys, p_modes, p_wins,
                    p_delays, p_run_at, p_expires, p_payloads, p_headers, p_tags, p_max_attempts, p_revisions, p_flows, p_edge_of,
                    p_edge_parents, p_edge_on));
            END IF;
            EXIT;
        EXCEPTION WHEN SQLSTATE 'WL001' OR unique_violation THEN
            IF NOT v_many THEN
                RAISE;
            END IF;
            v_many := false;
            v_alone := true;
        END;
    END LOOP;
    RETURN QUERY SELECT * FROM unnest(v_receipts);
    PERFORM _ring();
END $$;

-- Whether a job goes to a lane, or to a queue that has some: then rings change, which only one step at a time may do.
CREATE OR REPLACE FUNCTION _touches_lanes(p_queues text[], p_lanes text[]) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN p_lanes <> '{""}' OR EXISTS (SELECT FROM queue WHERE name = ANY (p_queues) AND laned);
END $$;

-- Accept jobs without keys and parents, all at once. p_alone: whether the step has the namespace to itself. Gives up (WL001, or a unique
-- violation) if a job has to be looked at by itself: its id was sent before, its queue is unknown or in sequence, or the store has a bound.
CREATE OR REPLACE FUNCTION _accept_many(
    p_alone boolean, p_ids uuid[], p_tasks text[], p_queues text[], p_lanes text[], p_priorities smallint[], p_delays bigint[],
    p_run_at bigint[], p_expires bigint[], p_payloads bytea[], p_headers bytea[], p_tags bytea[], p_max_attempts integer[],
    p_revisions bigint[], p_flows text[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    x record;
    o record;   -- what stands for all in a column of one element
    v_at bigint := _at();
    v_queues text[] := CASE cardinality(p_queues) WHEN 1 THEN p_queues ELSE array(SELECT DISTINCT unnest(p_queues)) END;
    v_queue text;
    v_n bigint := _draw_numbers();
    v_runs boolean;   -- whether they stand as runs
BEGIN
    SELECT count(*) AS known, bool_or(sequence) AS lined, bool_or(laned) AS laned, bool_or(emit = EMIT_ALL) AS emits,
        bool_or(age_step IS NOT NULL OR bands IS NOT NULL) AS banded
    INTO x FROM queue WHERE name = ANY (v_queues);
    IF x.known < cardinality(v_queues) OR x.lined OR (SELECT max_size IS NOT NULL FROM meta) OR (x.laned AND NOT p_alone)
        OR cardinality(p_ids) > DRAW THEN
        PERFORM _must_be_alone();
    END IF;
    IF p_lanes <> '{""}' THEN
        PERFORM _become_laned(u.queue) FROM (
            SELECT DISTINCT coalesce(w.queue, p_queues[1]) AS queue FROM unnest(p_queues, p_lanes) AS w (queue, lane)
            WHERE coalesce(w.lane, p_lanes[1]) <> '') u;
    END IF;
    SELECT p_tasks[1] AS task, p_queues[1] AS queue, p_lanes[1] AS lane, p_priorities[1] AS priority, p_delays[1] AS delay,
        p_max_attempts[1] AS max_attempts, p_revisions[1] AS revision, p_flows[1] AS flow,
        CASE cardinality(p_run_at) WHEN 1 THEN p_run_at[1] END AS run_at, CASE cardinality(p_expires) WHEN 1 THEN p_expires[1] END AS expires,
        CASE cardinality(p_headers) WHEN 1 THEN p_headers[1] END AS headers, CASE cardinality(p_tags) WHEN 1 THEN p_tags[1] END AS tags INTO o;
    v_runs := NOT x.laned AND p_lanes = '{""}' AND greatest(cardinality(p_tasks), cardinality(p_queues), cardinality(p_priorities),
        cardinality(p_delays), cardinality(p_run_at), cardinality(p_expires), cardinality(p_headers), cardinality(p_tags),
        cardinality(p_max_attempts), cardinality(p_revisions), cardinality(p_flows)) = 1;
    WITH filed AS MATERIALIZED (
        SELECT g.*, CASE WHEN g.due > v_at THEN STATE_SCHEDULED ELSE STATE_READY END::smallint AS state, octet_length(g.payload) AS size,
            CASE WHEN g.due > v_at THEN 0 WHEN NOT x.banded THEN -g.priority
                ELSE (SELECT _band_of(q, g.priority, g.due) FROM queue q WHERE q.name = g.queue) END AS band
        FROM (
            SELECT u.id, v_n + u.place - 1 AS n, coalesce(u.task, o.task) AS task, coalesce(u.queue, o.queue) AS queue,
                coalesce(u.lane, o.lane) AS lane, coalesce(u.priority, o.priority) AS priority, u.payload,
                _due_at(coalesce(u.run_at, o.run_at), coalesce(u.delay, o.delay), v_at) AS due,
                v_at + coalesce(u.expires, o.expires) AS expires_at, coalesce(u.headers, o.headers) AS headers,
                coalesce(u.tags, o.tags) AS tags, coalesce(u.max_attempts, o.max_attempts) AS max_attempts,
                coalesce(u.revision, o.revision) AS revision, coalesce(u.flow, o.flow) AS flow
            FROM unnest(p_ids, p_payloads, p_tasks, p_queues, p_lanes, p_priorities, p_delays, p_run_at, p_expires, p_headers, p_tags,
                p_max_attempts, p_revisions, p_flows) WITH ORDINALITY
                AS u (id, payload, task, queue, lane, priority, delay, run_at, expires, headers, tags, max_attempts, revision, flow, place)
            OFFSET 0) g
    ), made AS (
        INSERT INTO job (id, n, seq, state, priority, band, max_attempts, revision, queue, lane, task, accepted_at, due_at, size,
            flow, expires_at, headers, tags, payload, timer, waits)
        SELECT f.id, f.n, f.n, f.state, f.priority, f.band, f.max_attempts, f.revision, f.queue, f.lane, f.task, v_at, f.due, f.size,
            f.flow, f.expires_at, f.headers, f.tags, f.payload, f.expires_at, nullif(f.state, STATE_READY)
        FROM filed f
    ), placed AS (
        INSERT INTO ready (queue, lane, band, seq, n, width, task, size, expires_at, last, suspect)
        SELECT f.queue, f.lane, f.band, min(f.n), min(f.n), count(*), f.task, sum(f.size), f.expires_at, f.max_attempts <= 1, false
        FROM filed f WHERE f.state = STATE_READY
        GROUP BY (f.n - v_n) / CASE WHEN v_runs THEN RUN_WIDTH ELSE 1 END, f.queue, f.lane, f.band, f.task, f.expires_at, f.max_attempts
    )
    INSERT INTO delta (queue, task, state, n, bytes)
    SELECT f.queue, f.task, f.state, count(*), sum(f.size) FROM filed f GROUP BY f.queue, f.task, f.state;
    -- Behind the insert, which has waited for a step that moves a job of such an id to the past: a look before it finds the job in neither.
    IF _may_be_known(p_ids) THEN
        PERFORM _must_be_alone();
    END IF;
    IF x.laned OR p_lanes <> '{""}' THEN
        -- A lane that is in the ring of these jobs already stays there.
        PERFORM _refresh(l.queue, l.lane) FROM (
            SELECT DISTINCT coalesce(u.queue, p_queues[1]) AS queue, coalesce(u.lane, p_lanes[1]) AS lane
            FROM unnest(p_queues, p_lanes) AS u (queue, lane)) l JOIN queue q ON q.name = l.queue
        WHERE x.banded OR cardinality(p_priorities) > 1 OR NOT EXISTS (
            SELECT FROM seat WHERE queue = l.queue AND lane = l.lane AND band = CASE WHEN q.one_ring THEN 0 ELSE -o.priority END AND due IS NOT NULL);
    END IF;
    IF x.emits THEN
        INSERT INTO event_in (at, job, task, queue, lane, move, after, attempt, fence)
        SELECT v_at, j.id, j.task, j.queue, j.lane, 'enqueue', j.state, 0, 0
        FROM job j JOIN queue q ON q.name = j.queue AND q.emit = EMIT_ALL WHERE j.id = ANY (p_ids) ORDER BY j.n;
    END IF;
    FOREACH v_queue IN ARRAY v_queues LOOP
        PERFORM _note(v_queue);
    END LOOP;
END $$;

-- Whether one of these ids may be that of a job that has ended or waits to be taken in, or of a call that a key absorbed. Ids grow with time, so it is mostly enough to
-- look at the largest that is there.
CREATE OR REPLACE FUNCTION _may_be_known(p_ids uuid[]) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_slots smallint[] := (SELECT slots FROM meta);
    v_first uuid := (SELECT u FROM unnest(p_ids) u ORDER BY u LIMIT 1);
BEGIN
    -- Each by itself: a statement pays for all the tables that it might look at.
    IF EXISTS (SELECT FROM inbox) AND EXISTS (SELECT FROM inbox b WHERE (b.job).id = ANY (p_ids)) THEN
        RETURN true;
    ELSIF v_first <= (SELECT id FROM absorbed ORDER BY id DESC LIMIT 1) AND EXISTS (SELECT FROM absorbed WHERE id = ANY (p_ids)) THEN
        RETURN true;
    ELSIF _is_beyond_past(v_first, v_slots) THEN
        RETURN false;
    END IF;
    RETURN EXISTS (SELECT FROM past WHERE slot = ANY (v_slots) AND id = ANY (p_ids));
END $$;
