-- Settle and annotate: words about a lease, judged by its fence.
--
-- Keys touched: job and all that its end brings about (`02_lifecycle.sql`), timed, memo, log. Cost: a few rows an item;
-- dependents told: at most 100 a call.

-- What a holder's word leads to (`windlass.core.settlement`).
CREATE OR REPLACE FUNCTION _rule_settlement(j job, p_outcome text, p_delay bigint) RETURNS ruling LANGUAGE plpgsql AS $$
BEGIN
    IF p_outcome = 'done' THEN
        RETURN ROW('done', 'done', 4, NULL, 0, true, false)::ruling;
    ELSIF j.cancel_requested OR _superseded(j) THEN
        RETURN _rule_cancelled(j);
    ELSIF p_outcome = 'cancelled' THEN
        RETURN ROW('cancelled', 'cancel', 6, 'cancelled on request', 0, true, false)::ruling;
    ELSIF p_outcome = 'dead' THEN
        RETURN ROW('dead', 'dead', 5, 'gave up', 0, true, false)::ruling;
    ELSIF p_outcome = 'retry' AND j.attempt >= j.max_attempts THEN
        RETURN ROW('dead', 'retry', 5, 'attempts exhausted', 0, true, false)::ruling;
    ELSIF p_outcome IN ('retry', 'snooze') THEN
        RETURN ROW(p_outcome, p_outcome, CASE WHEN p_delay > 0 THEN 1 ELSE 2 END, NULL, greatest(0, p_delay),
            p_outcome = 'retry', false)::ruling;
    ELSIF p_outcome = 'hold' THEN
        IF _at() - coalesce(j.held_since, _at()) >= 604800000000 THEN
            -- Nothing ran, so the attempt is given back: a replay shows the count of real runs.
            RETURN ROW('dead', 'hold', 5, 'held too long', 0, false, false)::ruling;
        END IF;
        RETURN ROW('hold', 'hold', 1, NULL, least(300000000, 1000000::bigint << least(coalesce(j.held_times, 0), 16)),
            false, false)::ruling;
    END IF;
    RETURN ROW('release', 'release', 2, NULL, 0, false, true)::ruling;
END $$;

CREATE OR REPLACE FUNCTION _rule_cancelled(j job) RETURNS ruling LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN j.cancel_requested THEN ROW('cancelled', 'cancel', 6, 'cancelled on request', 0, true, false)::ruling
        ELSE ROW('cancelled', 'supersede', 6, 'superseded', 0, true, false)::ruling END
$$;

-- What becomes of a lease whose session ended.
CREATE OR REPLACE FUNCTION _rule_session_end(j job, p_kind text, p_started boolean) RETURNS ruling LANGUAGE plpgsql AS $$
BEGIN
    IF j.cancel_requested OR _superseded(j) THEN
        RETURN _rule_cancelled(j);
    ELSIF p_kind = 'stop' OR (p_kind = 'crash' AND NOT p_started) THEN
        RETURN ROW('release', 'release', 2, NULL, 0, false, true)::ruling;
    ELSIF j.attempt >= j.max_attempts THEN
        RETURN CASE WHEN p_kind = 'crash' THEN ROW('dead', 'crash', 5, 'crashed its worker', 0, true, false)::ruling
            ELSE ROW('dead', 'lost', 5, 'worker lost', 0, true, false)::ruling END;
    ELSIF j.crashes = 0 THEN
        RETURN ROW('retry', CASE p_kind WHEN 'crash' THEN 'crash' ELSE 'lost' END, 2, NULL, 0, true, true)::ruling;
    END IF;
    RETURN ROW('retry', CASE p_kind WHEN 'crash' THEN 'crash' ELSE 'lost' END, 1, NULL,
        least(60000000, 1000000::bigint << least(j.crashes - 1, 6)), true, false)::ruling;
END $$;

-- What becomes of a deadline lease that ran out: charged, but not a crash.
CREATE OR REPLACE FUNCTION _rule_deadline(j job) RETURNS ruling LANGUAGE plpgsql AS $$
BEGIN
    IF j.cancel_requested OR _superseded(j) THEN
        RETURN _rule_cancelled(j);
    ELSIF j.attempt >= j.max_attempts THEN
        RETURN ROW('dead', 'deadline', 5, 'lease ran out', 0, true, false)::ruling;
    END IF;
    RETURN ROW('retry', 'deadline', 2, NULL, 0, true, true)::ruling;
END $$;

-- Whether this is the live lease of a job: the fence check on which everything rests.
CREATE OR REPLACE FUNCTION _is_live(j job, p_fence bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN j.state = 3 AND j.fence = p_fence
       AND (j.session IS NULL OR EXISTS (SELECT FROM session WHERE id = j.session AND ended_at IS NULL));
END $$;

-- The answer to a word about a lease that is not live: verdict, outcome, state.
CREATE OR REPLACE FUNCTION _late(j job, p_fence bigint, OUT verdict text, OUT outcome text, OUT state smallint) LANGUAGE plpgsql STABLE AS $$
DECLARE
    d ended;
BEGIN
    IF j.n IS NULL OR j.pruned_until <= _at() THEN
        verdict := 'gone';
        RETURN;
    END IF;
    verdict := 'stale';
    FOREACH d IN ARRAY coalesce(j.deliveries, '{}') LOOP
        IF d.fence = p_fence AND d.settled THEN
            verdict := 'already';
            outcome := d.outcome;
            state := j.state;
            RETURN;
        END IF;
    END LOOP;
END $$;

-- A run of a task was timed, if it was.
CREATE OR REPLACE FUNCTION _note_time(p_task text, p_runtime bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_runtime IS NOT NULL AND NOT EXISTS (SELECT FROM timed WHERE task = p_task) THEN
        INSERT INTO timed (task) VALUES (p_task) ON CONFLICT DO NOTHING;
    END IF;
END $$;

-- One settlement. in: its fields; spawn: the children. out: verdict, outcome, state, why.
CREATE OR REPLACE FUNCTION _settle_one(
    p_id uuid, p_fence bigint, p_outcome text, p_delay bigint, p_runtime bigint, p_error bytea, p_result bytea,
    p_hold_key text, p_hold_reason bytea, p_too_large text, p_spawn asked[], OUT verdict text, OUT outcome text, OUT state smallint, OUT why text
) LANGUAGE plpgsql AS $$
DECLARE
    j job;
    r ruling;
BEGIN
    SELECT * INTO j FROM job WHERE id = p_id;
    IF j.n IS NOT NULL AND _is_live(j, p_fence) THEN
        SELECT * INTO j FROM job WHERE id = p_id FOR UPDATE NOWAIT;
        IF _was_settled_here(p_id) THEN
            SELECT * INTO j FROM job WHERE id = p_id;
        END IF;
    END IF;
    IF j.n IS NULL THEN
        j := _past(p_id);
    END IF;
    IF j.n IS NULL OR NOT _is_live(j, p_fence) THEN
        SELECT l.verdict, l.outcome, l.state INTO verdict, outcome, state FROM _late(j, p_fence) l;
        RETURN;
    END IF;
    IF p_too_large IS NOT NULL THEN
        verdict := 'refused';
        why := p_too_large;
        RETURN;
    ELSIF cardinality(p_spawn) > 0 THEN
        SELECT f.why INTO why FROM _refusals(p_spawn, true) f LIMIT 1;
        IF why IS NOT NULL THEN
            verdict := 'refused';
            RETURN;
        END IF;
    END IF;
    r := _rule_settlement(j, p_outcome, p_delay);
    PERFORM _note_time(j.task, p_runtime);
    IF r.outcome = 'done' THEN
        PERFORM _count_bytes(j, coalesce(octet_length(p_result), 0)::bigint);
        j.result := p_result;
        j.size := j.size + coalesce(octet_length(p_result), 0);
    ELSIF r.outcome = 'hold' THEN
        j.hold_key := p_hold_key;
        j.hold_reason := p_hold_reason;
        j.held_since := coalesce(j.held_since, _at());
        j.held_times := coalesce(j.held_times, 0) + 1;
    END IF;
    PERFORM _end_lease(j, r, p_outcome IN ('release', 'hold') AND p_runtime IS NULL, NULL, NULL, p_runtime, p_error);
    IF cardinality(p_spawn) > 0 THEN
        -- After the end, so that a job may spawn its successor under its own key.
        PERFORM _accept(p_spawn, p_id);
    END IF;
    verdict := 'applied';
    outcome := r.outcome;
    -- Nothing of what followed can have moved it on, but for a replacing child under its own key.
    SELECT o.state INTO state FROM job o WHERE o.n = j.n;
    PERFORM _drop_if_unkept(j.n);
END $$;

-- Whether all of these jobs are in plain queues, and none was settled in a caller's own transaction. p_one, p_other: the first
-- and the last of their queues by name. It stays so while the lock is held.
CREATE OR REPLACE FUNCTION _have_plain_ends(p_jobs uuid[], p_one text, p_other text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF EXISTS (SELECT FROM aftermath) AND EXISTS (SELECT FROM aftermath WHERE job = ANY (p_jobs)) THEN
        RETURN false;
    END IF;
    RETURN _are_plain(CASE WHEN p_one = p_other THEN ARRAY[p_one]
        ELSE array(SELECT DISTINCT queue FROM job WHERE id = ANY (p_jobs)) END);
END $$;

-- End leases of plain jobs that are done and stay, all at once. in: settlements, none of a job that another names too; their rows
-- are locked. out: the places of those that it has applied.
CREATE OR REPLACE FUNCTION _settle_done(
    p_jobs uuid[], p_fences bigint[], p_outcomes text[], p_runtimes bigint[], p_errors bytea[], p_results bytea[]
) RETURNS integer[] LANGUAGE plpgsql AS $$
DECLARE
    v_at bigint := _at();
    v_places integer[];
    v_ended bigint[];
    v_sessions text[];
BEGIN
    WITH given AS MATERIALIZED (
        SELECT u.*, q.emit, j.place, j.n, j.session, j.size AS old_size, j.has_memos AS had_memos
        FROM unnest(p_jobs, p_fences, p_outcomes, p_runtimes, p_errors, p_results) WITH ORDINALITY
            AS u (id, fence, outcome, runtime, error, result, o)
        CROSS JOIN LATERAL (SELECT ctid AS place, n, session, size, has_memos, queue FROM job WHERE id = u.id AND state = 3 AND fence = u.fence OFFSET 0) j
        JOIN queue q ON q.name = j.queue AND q.retention > 0
        WHERE u.outcome = 'done'
          AND (j.session IS NULL OR EXISTS (SELECT FROM session s WHERE s.id = j.session AND s.ended_at IS NULL))
    ), ended AS (
        UPDATE job j SET state = 4, reason = NULL, finished_at = v_at, cancel_requested = false, started = true,
            session = NULL, deadline = NULL, timer = NULL, hold_key = NULL, hold_reason = NULL, held_since = NULL,
            held_times = NULL, kept = (g.result IS NOT NULL)::integer, result = g.result, error = coalesce(g.error, j.error),
            size = j.size + coalesce(octet_length(g.result), 0), has_memos = false,
            deliveries = coalesce(j.deliveries[greatest(1, cardinality(j.deliveries) - 8):], '{}') || ROW(
                j.fence, j.attempt, g.session, j.claimed_at, v_at, 'done', true, NULL, g.runtime, g.error)::ended
        FROM given g WHERE j.ctid = g.place
        RETURNING j.n, g.session, j.id, j.queue, j.task, j.lane, j.attempt, j.fence, j.has_memos, g.o, g.emit, g.runtime,
            j.size - g.old_size AS grown, j.claimed_at - j.due_at AS waited
    ), counted AS (
        INSERT INTO delta (queue, task, state, n, bytes)
        SELECT e.queue, e.task, s.state, s.by * count(*), CASE s.state WHEN 4 THEN sum(e.grown) ELSE 0 END
        FROM ended e, (VALUES (3, -1), (4, 1)) s (state, by) GROUP BY e.queue, e.task, s.state, s.by
    ), logged AS (
        INSERT INTO event_in (at, job, task, queue, lane, move, before, after, outcome, attempt, fence, runtime, waited)
        SELECT v_at, e.id, e.task, e.queue, e.lane, 'done', 3, 4, 'done', e.attempt, e.fence, e.runtime, greatest(0, e.waited)
        FROM ended e WHERE e.emit > 0 ORDER BY e.o
    ), timed_now AS (
        INSERT INTO timed (task)
        SELECT DISTINCT e.task FROM ended e
        WHERE e.runtime IS NOT NULL AND NOT EXISTS (SELECT FROM timed t WHERE t.task = e.task)
        ORDER BY e.task   -- as everybody else, so that nobody waits in a circle
        ON CONFLICT DO NOTHING
    )
    SELECT array_agg(e.o), array_agg(e.n), array_agg(DISTINCT coalesce(e.session, '')) INTO v_places, v_ended, v_sessions FROM ended e;
    DELETE FROM lease WHERE session = ANY (v_sessions) AND n = ANY (v_ended);
    DELETE FROM memo WHERE n = ANY (v_ended);
    RETURN coalesce(v_places, '{}');
END $$;

-- The same for one that has the namespace to itself, also of jobs in lanes: they free slots and take nothing, so that it is enough
-- to look at each lane once. Nothing is done if a job has a key, dependents, or a place in a line.
CREATE OR REPLACE FUNCTION _settle_done_alone(
    p_jobs uuid[], p_fences bigint[], p_outcomes text[], p_runtimes bigint[], p_errors bytea[], p_results bytea[]
) RETURNS integer[] LANGUAGE plpgsql AS $$
DECLARE
    x record;
    v_done integer[];
BEGIN
    SELECT count(*) AS found, bool_or(j.tied) AS tied, min(j.queue) AS one, max(j.queue) AS other INTO x
    FROM (SELECT key IS NOT NULL OR has_children OR line IS NOT NULL AS tied, queue FROM job WHERE id = ANY (p_jobs) FOR UPDATE NOWAIT) j;
    IF x.tied OR x.found < cardinality(p_jobs) OR NOT _may_go_first(x.one, x.other, p_outcomes)
        OR EXISTS (SELECT FROM aftermath WHERE job = ANY (p_jobs)) THEN
        RETURN '{}';
    END IF;
    v_done := _settle_done(p_jobs, p_fences, p_outcomes, p_runtimes, p_errors, p_results);
    PERFORM _refresh(l.queue, l.lane) FROM (SELECT DISTINCT queue, lane FROM job WHERE id = ANY (p_jobs)) l;
    RETURN v_done;
END $$;

-- Whether the done ones of these settlements may be applied before the others: nobody could tell from the event log. In:
-- the first and the last of their queues by name.
CREATE OR REPLACE FUNCTION _may_go_first(p_one text, p_other text, p_outcomes text[]) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN cardinality(p_outcomes) = 1 OR NOT EXISTS (
        SELECT FROM queue
        WHERE emit > 0 AND (retention = 0 OR cardinality(array_remove(p_outcomes, 'done')) > 0)
          AND name BETWEEN p_one AND p_other);
END $$;

-- in: settlements as arrays (too_large: why the children of one cannot be accepted); children flat, each with the place
-- of its settlement; an ask, or NULL queues for none; p_alone: whether it needs the namespace to itself (the
-- caller remembers which queues do).
-- out: the head with the answers in order, then the leases.
DROP FUNCTION IF EXISTS settle(
    bigint, boolean, uuid[], bigint[], text[], bigint[], bigint[], bytea[], bytea[], text[], bytea[], text[], integer[], uuid[], text[],
    text[], text[], smallint[], text[], smallint[], bigint[], bigint[], bigint[], bigint[], bytea[], bytea[], bytea[], integer[], bigint[],
    text[], integer[], uuid[], smallint[], text[], integer, integer, text, bigint, bigint, boolean, bigint, bigint);
DROP FUNCTION IF EXISTS settle(
    bigint, boolean, uuid[], bigint[], text[], bigint[], bigint[], bytea[], bytea[], text[], bytea[], text[], integer[], uuid[], text[],
    text[], text[], smallint[], text[], smallint[], bigint[], bigint[], bigint[], bigint[], bytea[], bytea[], bytea[], integer[], bigint[],
    text[], integer[], uuid[], smallint[], text[], integer, integer, text, bigint, bigint, boolean, bigint, bigint, integer);
CREATE OR REPLACE FUNCTION settle(
    p_now bigint, p_alone boolean, p_jobs uuid[], p_fences bigint[], p_outcomes text[], p_delays bigint[], p_runtimes bigint[],
    p_errors bytea[], p_results bytea[], p_hold_keys text[], p_hold_reasons bytea[], p_too_large text[], p_spawn_of integer[],
    p_ids uuid[], p_tasks text[], p_queues text[], p_lanes text[], p_priorities smallint[], p_keys text[], p_modes smallint[],
    p_wins bigint[], p_child_delays bigint[], p_run_at bigint[], p_expires bigint[], p_payloads bytea[], p_headers bytea[],
    p_tags bytea[], p_max_attempts integer[], p_revisions bigint[], p_flows text[], p_edge_of integer[],
    p_edge_parents uuid[], p_edge_on smallint[],
    p_ask_queues text[], p_slots integer, p_size integer, p_session text, p_seq bigint, p_visibility bigint,
    p_suspects boolean, p_max_bytes bigint, p_draw bigint, p_soon integer DEFAULT 0, p_by_blocks boolean DEFAULT false
) RETURNS SETOF handed LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    a ask;
    c handed;
    x record;
    v_children asked[];
    v_childless boolean := cardinality(p_ids) = 0 AND cardinality(array_remove(p_too_large, NULL)) = 0;
    v_beside boolean := NOT p_alone AND NOT p_suspects AND v_childless;
    v_done integer[] := '{}';
    v_verdicts text[] := '{}';
    v_outcomes text[] := '{}';
    v_states smallint[] := '{}';
    v_whys text[] := '{}';
BEGIN
    IF v_beside THEN
        PERFORM _begin_beside(p_now);
        PERFORM _open_leases_with(p_jobs);
        -- Nobody is waited for while the lock is held: a job may be settled in a caller's own transaction, which can take
        -- long. Who finds it locked begins anew.
        SELECT count(*) AS found, bool_or(j.key IS NOT NULL OR j.has_children) AS tied, min(j.queue) AS one, max(j.queue) AS other
        INTO x FROM (SELECT key, has_children, queue FROM job WHERE id = ANY (p_jobs) FOR UPDATE NOWAIT) j;
        IF x.tied OR NOT _have_plain_ends(p_jobs, x.one, x.other)
            OR (p_ask_queues IS NOT NULL AND (NOT _are_plain(p_ask_queues) OR EXISTS (SELECT FROM inbox))) THEN
            PERFORM _must_be_alone();
        END IF;
        IF x.found = cardinality(p_jobs) AND _may_go_first(x.one, x.other, p_outcomes) THEN
            v_done := _settle_done(p_jobs, p_fences, p_outcomes, p_runtimes, p_errors, p_results);
        END IF;
    ELSE
        PERFORM _begin_alone(p_now);
        PERFORM _open_leases_with(p_jobs);
        IF v_childless AND cardinality(array_remove(p_outcomes, 'done')) = 0 THEN
            v_done := _settle_done_alone(p_jobs, p_fences, p_outcomes, p_runtimes, p_errors, p_results);
        END IF;
    END IF;
    IF cardinality(p_ids) > 0 THEN
        v_children := _asked(p_ids, p_tasks, p_queues, p_lanes, p_priorities, p_keys, p_modes, p_wins, p_child_delays,
            p_run_at, p_expires, p_payloads, p_headers, p_tags, p_max_attempts, p_revisions, p_flows, p_edge_of,
            p_edge_parents, p_edge_on);
    END IF;
    IF cardinality(v_done) = cardinality(p_jobs) THEN
        v_verdicts := array_fill('applied'::text, ARRAY[cardinality(p_jobs)]);
        v_outcomes := array_fill('done'::text, ARRAY[cardinality(p_jobs)]);
        v_states := array_fill(4::smallint, ARRAY[cardinality(p_jobs)]);
        v_whys := array_fill(''::text, ARRAY[cardinality(p_jobs)]);
    ELSE
        FOR v_i IN 1 .. cardinality(p_jobs) LOOP
            IF v_i = ANY (v_done) THEN
                SELECT 'applied' AS verdict, 'done' AS outcome, 4::smallint AS state, '' AS why INTO x;
            ELSE
                SELECT * INTO x FROM _settle_one(p_jobs[v_i], p_fences[v_i], p_outcomes[v_i], p_delays[v_i], p_runtimes[v_i],
                    p_errors[v_i], p_results[v_i], p_hold_keys[v_i], p_hold_reasons[v_i], p_too_large[v_i],
                    CASE WHEN v_children IS NOT NULL THEN array(
                        SELECT k FROM unnest(v_children) k WHERE p_spawn_of[k.i] = v_i ORDER BY k.i) END);
            END IF;
            v_verdicts := v_verdicts || x.verdict;
            v_outcomes := v_outcomes || x.outcome;
            v_states := v_states || x.state;
            v_whys := v_whys || coalesce(x.why, '');
        END LOOP;
    END IF;
    IF p_ask_queues IS NULL THEN
        c.verdicts := v_verdicts;
        c.outcomes := v_outcomes;
        c.states := v_states;
        c.whys := v_whys;
        RETURN NEXT c;
        PERFORM _wake_filled();
        RETURN;
    END IF;
    a := ROW(p_ask_queues, p_slots, p_size, p_session, p_seq, p_visibility, p_suspects, p_max_bytes, p_draw,
        NOT v_beside)::ask;
    x := _answer(a, p_soon, cardinality(p_jobs) >= 8);
    c := x.head;
    c.verdicts := v_verdicts;
    c.outcomes := v_outcomes;
    c.states := v_states;
    c.whys := v_whys;
    RETURN NEXT c;
    IF x.whole THEN
        RETURN QUERY SELECT * FROM _leased_in_blocks(a, x.leases, p_by_blocks);
    ELSIF x.fresh AND cardinality(x.leases) > 0 THEN
        RETURN QUERY SELECT * FROM _lease_out(a, x.leases);
    ELSIF cardinality(x.leases) > 0 THEN
        RETURN QUERY SELECT * FROM _leased(x.leases);
    END IF;
    PERFORM _wake_filled();
END $$;

-- in: notes as arrays; log lines flat, each with the place of its note. out: verdicts in order.
CREATE OR REPLACE FUNCTION annotate(
    p_now bigint, p_jobs uuid[], p_fences bigint[], p_extends bigint[], p_permilles integer[], p_messages bytea[],
    p_memo_names text[], p_memo_values bytea[], p_line_of integer[], p_lines bytea[], p_memos integer, p_memo_bytes bigint,
    p_log_lines integer
) RETURNS text[] LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    j job;
    v_verdicts text[] := '{}';
    v_count bigint;
    v_bytes bigint;
    v_lines bytea[];
BEGIN
    PERFORM _begin_beside(p_now);
    PERFORM _open_leases_with(p_jobs);
    -- In the order of ids, so that two calls never wait for each other.
    PERFORM FROM job WHERE id = ANY (p_jobs) ORDER BY id FOR NO KEY UPDATE;
    FOR v_i IN 1 .. cardinality(p_jobs) LOOP
        SELECT * INTO j FROM job WHERE id = p_jobs[v_i];
        IF NOT FOUND THEN
            j := _past(p_jobs[v_i]);
        END IF;
        IF j.n IS NULL OR NOT _is_live(j, p_fences[v_i]) THEN
            v_verdicts := v_verdicts || (SELECT l.verdict FROM _late(j, p_fences[v_i]) l);
            CONTINUE;
        END IF;
        IF p_memo_names[v_i] IS NOT NULL THEN
            SELECT count(*), coalesce(sum(octet_length(value)), 0) INTO v_count, v_bytes
            FROM memo WHERE n = j.n AND name <> p_memo_names[v_i];
            IF v_count >= p_memos OR v_bytes + octet_length(p_memo_values[v_i]) > p_memo_bytes THEN
                v_verdicts := v_verdicts || 'refused'::text;
                CONTINUE;
            END IF;
            INSERT INTO memo (n, name, value) VALUES (j.n, p_memo_names[v_i], p_memo_values[v_i])
            ON CONFLICT (n, name) DO UPDATE SET value = excluded.value;
        END IF;
        v_lines := array(SELECT line FROM unnest(p_line_of, p_lines) WITH ORDINALITY AS u (note, line, o)
                         WHERE note = v_i ORDER BY o);
        IF cardinality(v_lines) > 0 THEN
            INSERT INTO log (n, i, line) SELECT j.n, j.log_lines + o, line FROM unnest(v_lines) WITH ORDINALITY AS u (line, o);
            DELETE FROM log WHERE n = j.n AND i <= j.log_lines + cardinality(v_lines) - p_log_lines;
        END IF;
        UPDATE job SET
            deadline = CASE WHEN deadline IS NOT NULL AND p_extends[v_i] IS NOT NULL THEN _at() + p_extends[v_i] ELSE deadline END,
            timer = CASE WHEN deadline IS NOT NULL AND p_extends[v_i] IS NOT NULL THEN _at() + p_extends[v_i] ELSE timer END,
            permille = coalesce(p_permilles[v_i], permille),
            message = CASE WHEN p_permilles[v_i] IS NULL THEN message ELSE p_messages[v_i] END,
            log_lines = log_lines + cardinality(v_lines),
            has_memos = has_memos OR p_memo_names[v_i] IS NOT NULL
        WHERE n = j.n;
        v_verdicts := v_verdicts || 'applied'::text;
    END LOOP;
    RETURN v_verdicts;
END $$;
