-- The verb enqueue.
--
-- Two bodies. `_accept_many` files jobs that nothing ties to others, all at once. `_accept` (`08_accept.sql`) takes them one by one, with keys,
-- parents and refusals. Keys touched: those of `08_accept.sql`. Cost: O(jobs log n).

-- in: groups as one list of jobs, column by column; p_ends: where each group ends. A column in which all jobs are alike has one element, which stands
-- for all; one in which there is nothing is NULL. Edges are flat, each with the place of its child (from 1).
-- out: a receipt a job, in their order; no row at all if every job was created.
CREATE OR REPLACE FUNCTION enqueue(
    p_now bigint, p_ends integer[],
    p_ids uuid[], p_tasks text[], p_queues text[], p_lanes text[], p_priorities smallint[], p_keys text[], p_modes smallint[],
    p_wins bigint[], p_delays bigint[], p_run_at bigint[], p_expires bigint[], p_payloads bytea[], p_headers bytea[],
    p_tags bytea[], p_max_attempts integer[], p_revisions bigint[], p_flows text[], p_edge_of integer[],
    p_edge_parents uuid[], p_edge_on smallint[]
) RETURNS SETOF receipt LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_many boolean := p_keys IS NULL AND p_edge_of IS NULL;
    v_exclusive boolean := NOT v_many OR p_lanes <> '{""}';
    v_receipts receipt[];
BEGIN
    LOOP   -- at most twice
        BEGIN
            IF v_exclusive THEN
                PERFORM _begin_exclusive(p_now);
            ELSE
                PERFORM _begin_shared(p_now);
            END IF;
            IF v_many THEN
                PERFORM _accept_many(v_exclusive, p_ids, p_tasks, p_queues, p_lanes, p_priorities, p_delays, p_run_at, p_expires, p_payloads,
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
            v_exclusive := true;
        END;
    END LOOP;
    IF v_receipts IS NOT NULL THEN
        RETURN QUERY SELECT * FROM unnest(v_receipts);
    END IF;
    PERFORM _ring();
END $$;

-- Accept jobs without keys and parents, all at once. p_exclusive: whether the step has the namespace to itself. Gives up (WL001, or a unique
-- violation) if a job has to be looked at by itself: its id was sent before, its queue is unknown or in sequence, or the store has a bound.
CREATE OR REPLACE FUNCTION _accept_many(
    p_exclusive boolean, p_ids uuid[], p_tasks text[], p_queues text[], p_lanes text[], p_priorities smallint[], p_delays bigint[],
    p_run_at bigint[], p_expires bigint[], p_payloads bytea[], p_headers bytea[], p_tags bytea[], p_max_attempts integer[],
    p_revisions bigint[], p_flows text[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    x record;
    v_at bigint := _at();
    v_queues text[] := p_queues;
    v_queue text;
    v_first uuid := p_ids[1];
    v_n bigint := _draw_numbers();
    v_runs boolean;   -- whether they stand as runs
    v_due bigint;     -- of one job
    v_state smallint;
    v_band bigint;
    v_expires_at bigint;
    v_size bigint;
BEGIN
    IF cardinality(p_ids) > 1 THEN
        v_queues := array(SELECT DISTINCT unnest(p_queues));
        v_first := (SELECT u FROM unnest(p_ids) u ORDER BY u LIMIT 1);
    END IF;
    -- All that is to be known beforehand in one statement: in a call of one job, statements are what it costs.
    SELECT m.max_size, m.segments, q.*, EXISTS (SELECT FROM inbox) AS waits, (SELECT id FROM absorbed ORDER BY id DESC LIMIT 1) AS absorbed
    INTO x FROM meta m CROSS JOIN (
        SELECT count(*) AS known, bool_or(sequence) AS lined, bool_or(laned) AS laned, bool_or(emit = EMIT_ALL) AS emits,
            bool_or(age_step IS NOT NULL OR bands IS NOT NULL) AS banded
        FROM queue WHERE name = ANY (v_queues)) q;
    IF x.known < cardinality(v_queues) OR x.lined OR x.max_size IS NOT NULL OR (x.laned AND NOT p_exclusive) OR cardinality(p_ids) > DRAW THEN
        PERFORM _must_be_exclusive();
    END IF;
    IF p_lanes <> '{""}' THEN
        PERFORM _become_laned(u.queue) FROM (
            SELECT DISTINCT coalesce(w.queue, p_queues[1]) AS queue FROM unnest(p_queues, p_lanes) AS w (queue, lane)
            WHERE coalesce(w.lane, p_lanes[1]) <> '') u;
    END IF;
    IF cardinality(p_ids) = 1 THEN   -- the same rows as below, for a fifth less of the server's time
        v_due := _due_at(p_run_at[1], p_delays[1], v_at);
        v_state := CASE WHEN v_due > v_at THEN STATE_SCHEDULED ELSE STATE_READY END;
        v_band := CASE WHEN v_due > v_at THEN 0 WHEN x.banded THEN _band_in(p_queues[1], p_priorities[1], v_due) ELSE -p_priorities[1] END;
        v_expires_at := v_at + p_expires[1];
        v_size := octet_length(p_payloads[1]);
        INSERT INTO job (id, n, seq, state, priority, band, max_attempts, revision, queue, lane, task, accepted_at, due_at, size,
            flow, expires_at, headers, tags, payload, timer, waits)
        VALUES (v_first, v_n, v_n, v_state, p_priorities[1], v_band, p_max_attempts[1], p_revisions[1], p_queues[1], p_lanes[1], p_tasks[1], v_at,
            v_due, v_size, p_flows[1], v_expires_at, p_headers[1], p_tags[1], p_payloads[1], v_expires_at, nullif(v_state, STATE_READY));
        IF v_state = STATE_READY THEN
            INSERT INTO ready (queue, lane, band, seq, n, task, size, expires_at, last, suspect)
            VALUES (p_queues[1], p_lanes[1], v_band, v_n, v_n, p_tasks[1], v_size, v_expires_at, p_max_attempts[1] <= 1, false);
        END IF;
        INSERT INTO delta (queue, task, state, n, bytes) VALUES (p_queues[1], p_tasks[1], v_state, 1, v_size);
    ELSE
        v_runs := NOT x.laned AND p_lanes = '{""}' AND greatest(cardinality(p_tasks), cardinality(p_queues), cardinality(p_priorities),
            cardinality(p_delays), cardinality(p_run_at), cardinality(p_expires), cardinality(p_headers), cardinality(p_tags),
            cardinality(p_max_attempts), cardinality(p_revisions), cardinality(p_flows)) = 1;
        WITH filed AS MATERIALIZED (
            SELECT g.*, CASE WHEN g.due > v_at THEN STATE_SCHEDULED ELSE STATE_READY END::smallint AS state, octet_length(g.payload) AS size,
                CASE WHEN g.due > v_at THEN 0 WHEN x.banded THEN _band_in(g.queue, g.priority, g.due) ELSE -g.priority END AS band
            FROM (
                SELECT u.id, v_n + u.place - 1 AS n, coalesce(u.task, p_tasks[1]) AS task, coalesce(u.queue, p_queues[1]) AS queue,
                    coalesce(u.lane, p_lanes[1]) AS lane, coalesce(u.priority, p_priorities[1]) AS priority, u.payload,
                    _due_at(CASE cardinality(p_run_at) WHEN 1 THEN p_run_at[1] ELSE u.run_at END, coalesce(u.delay, p_delays[1]), v_at) AS due,
                    v_at + CASE cardinality(p_expires) WHEN 1 THEN p_expires[1] ELSE u.expires END AS expires_at,
                    CASE cardinality(p_headers) WHEN 1 THEN p_headers[1] ELSE u.headers END AS headers,
                    CASE cardinality(p_tags) WHEN 1 THEN p_tags[1] ELSE u.tags END AS tags,
                    coalesce(u.max_attempts, p_max_attempts[1]) AS max_attempts, coalesce(u.revision, p_revisions[1]) AS revision,
                    coalesce(u.flow, p_flows[1]) AS flow
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
            ORDER BY f.id   -- as every call does, so that of two with the same ids one waits for the other, and never each for the other
        ), placed AS (
            INSERT INTO ready (queue, lane, band, seq, n, width, task, size, expires_at, last, suspect)
            SELECT f.queue, f.lane, f.band, min(f.n), min(f.n), count(*), f.task, sum(f.size), f.expires_at, f.max_attempts <= 1, false
            FROM filed f WHERE f.state = STATE_READY
            GROUP BY (f.n - v_n) / CASE WHEN v_runs THEN RUN_WIDTH ELSE 1 END, f.queue, f.lane, f.band, f.task, f.expires_at, f.max_attempts
        )
        INSERT INTO delta (queue, task, state, n, bytes)
        SELECT f.queue, f.task, f.state, count(*), sum(f.size) FROM filed f GROUP BY f.queue, f.task, f.state;
    END IF;
    -- Behind the insert, which has waited for a step that moves a job of such an id to the past: a look before it finds the job in neither.
    -- Ids grow with time, so it is mostly enough to look at the largest that is there.
    IF x.waits OR v_first <= x.absorbed OR NOT _is_beyond_past(v_first, x.segments) THEN
        PERFORM _must_be_new(p_ids, x.segments);
    END IF;
    IF x.laned OR p_lanes <> '{""}' THEN
        -- A lane that is in the ring of these jobs already stays there.
        PERFORM _refresh(l.queue, l.lane) FROM (
            SELECT DISTINCT coalesce(u.queue, p_queues[1]) AS queue, coalesce(u.lane, p_lanes[1]) AS lane
            FROM unnest(p_queues, p_lanes) AS u (queue, lane)) l JOIN queue q ON q.name = l.queue
        WHERE x.banded OR cardinality(p_priorities) > 1 OR NOT EXISTS (
            SELECT FROM seat WHERE queue = l.queue AND lane = l.lane AND band = CASE WHEN q.one_ring THEN 0 ELSE -p_priorities[1] END AND due IS NOT NULL);
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

-- Give up the step if one of these ids is that of a job that has ended or waits to be taken in, or of a call that a key absorbed.
CREATE OR REPLACE FUNCTION _must_be_new(p_ids uuid[], p_segments smallint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM inbox b WHERE (b.job).id = ANY (p_ids)) OR EXISTS (SELECT FROM absorbed WHERE id = ANY (p_ids))
        OR EXISTS (SELECT FROM past WHERE segment = ANY (p_segments) AND id = ANY (p_ids)) THEN
        PERFORM _must_be_exclusive();
    END IF;
END $$;
