-- Settle and annotate: messages about a lease, checked by its fence.
--
-- Two bodies. `_settle_done` ends the leases of plain jobs that are done, all at once. `_settle_one` ends any lease in any way.
--
-- Keys touched: job, past, lease and all that an end brings about (`03_lifecycle.sql`), timed, memo, log; those of the claim. Cost: a few rows an
-- item; dependents told: at most 100 a call.

-- in: settlements as arrays (too_large: why the children of one cannot be accepted); children flat, as `enqueue` is given jobs, each with the place
-- of its settlement; an ask, or NULL queues for none. out: the head with the answers in order, then the leases. No answers: all are done.
CREATE OR REPLACE FUNCTION settle(
    p_now bigint, p_jobs uuid[], p_fences bigint[], p_outcomes text[], p_delays bigint[], p_runtimes bigint[],
    p_errors bytea[], p_results bytea[], p_hold_keys text[], p_hold_reasons bytea[], p_too_large text[], p_spawn_of integer[],
    p_ids uuid[], p_tasks text[], p_queues text[], p_lanes text[], p_priorities smallint[], p_keys text[], p_modes smallint[],
    p_wins bigint[], p_child_delays bigint[], p_run_at bigint[], p_expires bigint[], p_payloads bytea[], p_headers bytea[],
    p_tags bytea[], p_max_attempts integer[], p_revisions bigint[], p_flows text[], p_edge_of integer[],
    p_edge_parents uuid[], p_edge_on smallint[],
    p_ask_queues text[], p_slots integer, p_size integer, p_session text, p_seq bigint, p_visibility bigint,
    p_suspects boolean, p_max_bytes bigint, p_draw bigint, p_soon integer
) RETURNS SETOF claimed LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    a ask := ROW(p_ask_queues, p_slots, p_size, p_session, p_seq, p_visibility, p_suspects, p_max_bytes, p_draw, p_soon)::ask;
    x record;
    v_exclusive boolean := cardinality(p_ids) > 0 OR _needs_exclusive(a);
    v_children asked[];
    v_done boolean[];      -- which of them `_settle_done` has ended; NULL: all
    v_answers answer[];
    v_head claimed;
    v_leases run[];
BEGIN
    IF cardinality(p_ids) > 0 THEN
        v_children := _asked(p_ids, p_tasks, p_queues, p_lanes, p_priorities, p_keys, p_modes, p_wins, p_child_delays, p_run_at,
            p_expires, p_payloads, p_headers, p_tags, p_max_attempts, p_revisions, p_flows, p_edge_of, p_edge_parents, p_edge_on);
    END IF;
    LOOP   -- at most twice
        BEGIN
            IF v_exclusive THEN
                PERFORM _begin_exclusive(p_now);
            ELSE
                PERFORM _begin_shared(p_now);
            END IF;
            SELECT * INTO x FROM _settle_done(p_jobs, p_fences, p_outcomes, p_runtimes, p_errors, p_results,
                p_spawn_of, p_too_large, p_session);
            v_done := x.done;
            IF NOT v_exclusive THEN
                PERFORM _lock_lanes(x.queues || p_ask_queues);
                IF _needs_exclusive(a) OR EXISTS (SELECT FROM queue q WHERE q.name = ANY (x.queues) AND NOT _takes_many(q)) THEN
                    PERFORM _must_be_exclusive();
                END IF;
            END IF;
            -- A lane that is in a ring was below its limit before, and one without jobs has nothing to hand out.
            PERFORM _refresh(l.queue, l.lane) FROM (SELECT DISTINCT u.queue, u.lane FROM unnest(x.of, x.lanes) AS u (queue, lane)) l
            WHERE NOT EXISTS (SELECT FROM seat WHERE queue = l.queue AND lane = l.lane AND due IS NOT NULL)
              AND EXISTS (SELECT FROM ready WHERE queue = l.queue AND lane = l.lane);
            IF v_done IS NOT NULL THEN
                v_answers := '{}';
                FOR v_i IN 1 .. cardinality(p_jobs) LOOP
                    v_answers := v_answers || CASE WHEN v_done[v_i] THEN ROW('applied', 'done', STATE_DONE, '')::answer ELSE
                        _settle_one(p_jobs[v_i], p_fences[v_i], p_outcomes[v_i], p_delays[v_i], p_runtimes[v_i], p_errors[v_i],
                            p_results[v_i], p_hold_keys[v_i], p_hold_reasons[v_i], p_too_large[v_i],
                            CASE WHEN v_children IS NOT NULL THEN array(
                                SELECT k FROM unnest(v_children) k WHERE p_spawn_of[k.i] = v_i ORDER BY k.i) END,
                            CASE WHEN NOT v_exclusive THEN coalesce(x.queues, '{}') || p_ask_queues END) END;
                END LOOP;
            END IF;
            IF p_ask_queues IS NOT NULL THEN
                x := _answer(a, v_exclusive);
                v_head := x.head;
                v_leases := x.leases;
            END IF;
            EXIT;
        EXCEPTION WHEN SQLSTATE 'WL001' THEN
            IF v_exclusive THEN
                RAISE;
            END IF;
            v_exclusive := true;
        END;
    END LOOP;
    IF v_done IS NOT NULL THEN
        SELECT array_agg(u.verdict), array_agg(u.outcome), array_agg(u.state), array_agg(coalesce(u.why, ''))
        INTO v_head.verdicts, v_head.outcomes, v_head.states, v_head.whys
        FROM unnest(v_answers) WITH ORDINALITY AS u (verdict, outcome, state, why, o);
    END IF;
    RETURN NEXT v_head;
    RETURN QUERY SELECT * FROM _leased(v_leases);
    PERFORM _ring();
END $$;

-- End the leases of plain jobs that are done and go to the past, all at once. in: settlements (p_spawn_of, p_too_large: those with
-- children are left alone); p_session: the asker. out: which of them it has ended (NULL: all); the queues of those; and of each that was in a lane, its
-- queue and lane.
CREATE OR REPLACE FUNCTION _settle_done(
    p_jobs uuid[], p_fences bigint[], p_outcomes text[], p_runtimes bigint[], p_errors bytea[], p_results bytea[], p_spawn_of integer[],
    p_too_large text[], p_session text, OUT done boolean[], OUT queues text[], OUT "of" text[], OUT lanes text[]
) LANGUAGE plpgsql AS $$
DECLARE
    f record;
    x record;
    v_at bigint := _at();
    v_session text := coalesce(p_session, (_load(p_jobs[1])).session, '');              -- that of all of them, mostly
    v_lives boolean := _holder_lives(nullif(v_session, ''));
    v_aside uuid[] := array(SELECT job FROM aftermath);                               -- settled in callers' own transactions
    v_forgotten text[] := array(SELECT queue FROM horizon WHERE finished_at >= v_at);  -- after a step back of the clock
    v_patience text := current_setting('lock_timeout');
    v_o integer;
    v_lowered bigint;   -- by how much leases have fewer jobs now
BEGIN
    queues := '{}';
    done := array_fill(false, ARRAY[cardinality(p_jobs)]);
    SELECT array_agg(j.place) AS places, array_agg(DISTINCT j.n) AS jobs, array_agg(l.at) AS ats, array_agg(u.o) AS said, array_agg(DISTINCT q.name) AS queues,
        array_agg(q.segment) AS segments, array_agg(q.name) FILTER (WHERE q.laned) AS of, array_agg(j.lane) FILTER (WHERE q.laned) AS lanes
    INTO f
    FROM unnest(p_jobs, p_fences, p_outcomes, p_errors) WITH ORDINALITY AS u (id, said, outcome, error, o)
    CROSS JOIN LATERAL (
        SELECT ctid AS place, n, queue, lane, fence, has_children, after_ids, flow, log_lines FROM job
        WHERE id = u.id AND state = STATE_READY AND key IS NULL AND line IS NULL AND NOT has_memos OFFSET 0) j   -- nothing else ends with it
    CROSS JOIN LATERAL (
        SELECT at, n + width > j.n AS covers FROM lease
        WHERE session = v_session AND n BETWEEN j.n - RUN_WIDTH + 1 AND j.n ORDER BY n DESC LIMIT 1) l
    JOIN queue q ON q.name = j.queue AND _goes_to_past(q, q.name = ANY (v_forgotten), j.has_children, j.after_ids, j.flow, j.log_lines)
    WHERE u.outcome = 'done' AND u.error IS NULL AND u.o <> ALL (p_spawn_of) AND p_too_large[u.o] IS NULL AND u.id <> ALL (v_aside)
      AND _is_live(l.covers, _new_fence(j.fence, l.at), u.said, v_lives);
    IF f.places IS NULL OR (cardinality(f.places) < cardinality(p_jobs) AND (SELECT count(DISTINCT u) FROM unnest(p_jobs) u) < cardinality(p_jobs))
        OR cardinality(f.jobs) < cardinality(f.places) THEN
        RETURN;   -- there is none; or a job is named twice, and the first message about it counts
    END IF;
    -- A caller's own transaction that settles one of these can take long: it is not waited for while a lock of the namespace is held.
    PERFORM set_config('lock_timeout', '100', true);
    WITH ended AS (
        DELETE FROM job j USING unnest(f.places, f.ats, f.said, f.segments) AS u (place, at, o, segment) WHERE j.ctid = u.place
        RETURNING j.*, u.at, u.o, u.segment AS into_segment
    ), kept AS (
        INSERT INTO past (id, n, state, priority, attempt, max_attempts, crashes, revision, queue, lane, task, band, seq, accepted_at,
            due_at, fence, claimed_at, size, started, replays, kept, parent, expires_at, finished_at, mode, win, permille, message,
            headers, tags, deliveries, error, result, payload, segment, session, deadline)   -- session, deadline: see `_as_kept`
        SELECT e.id, e.n, STATE_DONE, e.priority, e.attempt + 1, e.max_attempts, e.crashes, e.revision, e.queue, e.lane, e.task, e.band, e.seq,
            e.accepted_at, e.due_at, p_fences[e.o], e.at, e.size + coalesce(octet_length(p_results[e.o]), 0), true, e.replays,
            CASE WHEN p_results[e.o] IS NULL THEN KEPT_PLAIN ELSE KEPT_WITH_RESULT END, e.parent, e.expires_at, v_at, e.mode, e.win, e.permille, e.message, e.headers, e.tags,
            CASE WHEN e.deliveries IS NOT NULL OR v_session = '' THEN _with_end(e.deliveries, ROW(
                p_fences[e.o], e.attempt + 1, nullif(v_session, ''), e.at, v_at, 'done', true, NULL, p_runtimes[e.o], NULL)::ended) END,
            e.error, p_results[e.o], e.payload, e.into_segment, CASE WHEN e.deliveries IS NULL THEN nullif(v_session, '') END,
            CASE WHEN e.deliveries IS NULL AND v_session <> '' THEN p_runtimes[e.o] END
        FROM ended e
    ), tasks AS (
        SELECT e.queue, e.task, count(*) AS n, coalesce(sum(octet_length(p_results[e.o])), 0) AS bytes, bool_or(p_runtimes[e.o] IS NOT NULL) AS timed
        FROM ended e GROUP BY e.queue, e.task
    ), counted AS (
        INSERT INTO delta (queue, task, state, n, bytes)
        SELECT t.queue, t.task, s.state, s.by * t.n, CASE s.state WHEN STATE_DONE THEN t.bytes ELSE 0 END
        FROM tasks t, (VALUES (STATE_RUNNING, -1), (STATE_DONE, 1)) s (state, by)
    ), timed_now AS (
        INSERT INTO timed (task)
        SELECT DISTINCT t.task FROM tasks t WHERE t.timed AND NOT EXISTS (SELECT FROM timed d WHERE d.task = t.task)
        ORDER BY t.task   -- as every step does, so that nobody waits in a circle
        ON CONFLICT DO NOTHING
    )
    SELECT sum(t.n) AS count INTO x FROM tasks t;
    PERFORM set_config('lock_timeout', v_patience, true);
    WITH lowered AS (
        -- An array that is in order tells by halves how many of its values are below another.
        UPDATE lease SET remaining = remaining - (width_bucket(n + width - 1, f.jobs) - width_bucket(n - 1, f.jobs))
        WHERE session = v_session AND n BETWEEN f.jobs[1] - RUN_WIDTH + 1 AND f.jobs[cardinality(f.jobs)]
        RETURNING width_bucket(n + width - 1, f.jobs) - width_bucket(n - 1, f.jobs) AS by
    )
    SELECT sum(o.by) INTO v_lowered FROM lowered o;
    DELETE FROM lease WHERE session = v_session AND n BETWEEN f.jobs[1] - RUN_WIDTH + 1 AND f.jobs[cardinality(f.jobs)] AND remaining = 0;
    IF x.count IS DISTINCT FROM cardinality(f.jobs) OR v_lowered IS DISTINCT FROM cardinality(f.jobs) OR EXISTS (
        SELECT FROM aftermath WHERE job = ANY (p_jobs) AND job <> ALL (v_aside)) THEN
        RAISE EXCEPTION 'another step has ended one of these meanwhile' USING ERRCODE = 'serialization_failure';
    END IF;
    PERFORM _note_freed(f.queues);
    queues := f.queues;
    "of" := f.of;
    lanes := f.lanes;
    IF x.count = cardinality(p_jobs) THEN
        done := NULL;
    ELSE
        FOREACH v_o IN ARRAY f.said LOOP
            done[v_o] := true;
        END LOOP;
    END IF;
END $$;

-- Whether the holder of a lease lives: a session that has not ended; a deadline lease has none.
CREATE OR REPLACE FUNCTION _holder_lives(p_session text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN p_session IS NULL OR EXISTS (SELECT FROM session WHERE id = p_session AND ended_at IS NULL);
END $$;

-- Whether a message comes from the live lease of a job.
CREATE OR REPLACE FUNCTION _holds(j job, p_said bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN _is_live(j.state = STATE_RUNNING, j.fence, p_said, _holder_lives(j.session)) IS TRUE;
END $$;

-- One settlement. in: its fields; p_spawn: the children; p_locked: queues whose lanes are locked, or NULL if the step has the namespace to itself.
CREATE OR REPLACE FUNCTION _settle_one(
    p_id uuid, p_fence bigint, p_outcome text, p_delay bigint, p_runtime bigint, p_error bytea, p_result bytea,
    p_hold_key text, p_hold_reason bytea, p_too_large text, p_spawn asked[], p_locked text[]
) RETURNS answer LANGUAGE plpgsql AS $$
DECLARE
    j job;
    r ruling;
    v_answer answer;
BEGIN
    IF cardinality(p_spawn) > 0 THEN
        PERFORM _take_in_before(p_spawn);
    END IF;
    -- Nobody is waited for while a lock of the namespace is held: a caller's own transaction that settles this job can take long.
    PERFORM FROM job WHERE id = p_id FOR UPDATE NOWAIT;
    IF EXISTS (SELECT FROM aftermath WHERE job = p_id) THEN
        IF p_locked IS NOT NULL THEN
            PERFORM _must_be_exclusive();
        END IF;
        PERFORM _was_settled_here(p_id);
    END IF;
    j := _load(p_id);
    IF NOT _holds(j, p_fence) THEN
        RETURN _late(j, p_fence);
    END IF;
    IF p_locked IS NOT NULL AND (j.key IS NOT NULL OR j.has_children OR NOT _may_share(j.queue, p_locked)) THEN
        PERFORM _must_be_exclusive();
    ELSIF p_too_large IS NOT NULL THEN
        RETURN ROW('refused', NULL, NULL, p_too_large)::answer;
    ELSIF cardinality(p_spawn) > 0 THEN
        SELECT f.why INTO v_answer.why FROM _refusals(p_spawn, true, false) f LIMIT 1;
        IF FOUND THEN
            v_answer.verdict := 'refused';
            RETURN v_answer;
        END IF;
    END IF;
    r := _rule_settlement(_facts(j), p_outcome, p_delay);
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
    v_answer.verdict := 'applied';
    v_answer.outcome := r.outcome;
    -- Nothing of what followed can have moved it on, but for a replacing child under its own key.
    SELECT state INTO v_answer.state FROM job WHERE n = j.n;
    PERFORM _drop_if_unkept(j.n);
    RETURN v_answer;
END $$;

-- Whether a step that shares the namespace may change a job of this queue by itself.
CREATE OR REPLACE FUNCTION _may_share(p_queue text, p_locked text[]) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM queue q WHERE q.name = p_queue AND (NOT q.laned OR q.name = ANY (p_locked)) AND _takes_many(q));
END $$;

-- The answer to a message about a lease that is not live.
CREATE OR REPLACE FUNCTION _late(j job, p_fence bigint) RETURNS answer LANGUAGE plpgsql STABLE AS $$
DECLARE
    d ended;
BEGIN
    IF j.n IS NULL OR j.pruned_until <= _at() THEN
        RETURN ROW('gone', NULL, NULL, NULL)::answer;
    END IF;
    FOREACH d IN ARRAY coalesce(j.deliveries, '{}') LOOP
        IF d.fence = p_fence AND d.settled THEN
            RETURN ROW('already', d.outcome, j.state, NULL)::answer;
        END IF;
    END LOOP;
    RETURN ROW('stale', NULL, NULL, NULL)::answer;
END $$;

-- A run of a task was timed, if it was.
CREATE OR REPLACE FUNCTION _note_time(p_task text, p_runtime bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_runtime IS NOT NULL AND NOT EXISTS (SELECT FROM timed WHERE task = p_task) THEN
        INSERT INTO timed (task) VALUES (p_task) ON CONFLICT DO NOTHING;
    END IF;
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
    PERFORM _begin_shared(p_now);
    -- In the order of ids, so that two calls never wait for each other.
    PERFORM FROM job WHERE id = ANY (p_jobs) ORDER BY id FOR NO KEY UPDATE;
    FOR v_i IN 1 .. cardinality(p_jobs) LOOP
        j := _load(p_jobs[v_i]);
        IF NOT _holds(j, p_fences[v_i]) THEN
            v_verdicts := v_verdicts || (_late(j, p_fences[v_i])).verdict;
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
        IF j.deadline IS NOT NULL AND p_extends[v_i] IS NOT NULL THEN
            PERFORM _own_lease(j);
            UPDATE lease SET deadline = _at() + p_extends[v_i] WHERE session = coalesce(j.session, '') AND n = j.n;
        END IF;
        UPDATE job SET
            permille = coalesce(p_permilles[v_i], permille),
            message = CASE WHEN p_permilles[v_i] IS NULL THEN message ELSE p_messages[v_i] END,
            log_lines = log_lines + cardinality(v_lines),
            has_memos = has_memos OR p_memo_names[v_i] IS NOT NULL
        WHERE n = j.n;
        v_verdicts := v_verdicts || 'applied'::text;
    END LOOP;
    RETURN v_verdicts;
END $$;
