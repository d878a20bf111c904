-- What operators do to jobs, queues and lanes.
--
-- Keys touched: the jobs' and all that their ends bring about. Cost: as settle; at most 1,000 jobs a call.

-- in: a verb, jobs and the states expected of them; for edit, new values (NULL: as it is). out: one row a job, in order.
CREATE OR REPLACE FUNCTION operate(
    p_now bigint, p_verb text, p_jobs uuid[], p_expect smallint[], p_payloads bytea[] DEFAULT NULL, p_headers bytea[] DEFAULT NULL,
    p_tags bytea[] DEFAULT NULL, p_priorities smallint[] DEFAULT NULL, p_max_attempts integer[] DEFAULT NULL,
    OUT effect text, OUT state smallint, OUT held_by uuid
) RETURNS SETOF record LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    j job;
BEGIN
    PERFORM _begin_exclusive(p_now);
    FOR v_i IN 1 .. cardinality(p_jobs) LOOP
        j := _load(p_jobs[v_i]);
        IF j.pruned_until IS NOT NULL THEN
            j := NULL;
        END IF;
        state := j.state;
        held_by := NULL;
        IF j.n IS NULL THEN
            effect := 'not found';
        ELSIF p_expect[v_i] <> j.state THEN
            effect := 'wrong state';
        ELSIF p_verb = 'cancel' THEN
            effect := _cancel(j);
        ELSIF p_verb = 'replay' THEN
            SELECT r.effect, r.held_by INTO effect, held_by FROM _replay(j) r;
        ELSIF p_verb IN ('discard', 'prune') THEN
            effect := _remove_finished(j, p_verb);
        ELSE
            effect := _edit(j, p_payloads[v_i], p_headers[v_i], p_tags[v_i], p_priorities[v_i], p_max_attempts[v_i]);
        END IF;
        IF effect = 'applied' AND p_verb = 'cancel' THEN
            state := STATE_CANCELLED;
        ELSIF effect = 'applied' AND p_verb = 'replay' THEN
            state := STATE_READY;
        ELSIF effect = 'applied' AND p_verb IN ('discard', 'prune') THEN
            state := NULL;
        END IF;
        RETURN NEXT;
    END LOOP;
    PERFORM _ring();
END $$;

CREATE OR REPLACE FUNCTION _cancel(j job) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF j.state >= STATE_DONE THEN
        RETURN 'wrong state';
    ELSIF j.state = STATE_RUNNING THEN
        PERFORM _own_lease(j);
        UPDATE lease SET flagged = true WHERE session = coalesce(j.session, '') AND n = j.n;
        RETURN 'flagged';
    END IF;
    PERFORM _cancel_waiting(j, 'cancel', 'cancelled on request');
    RETURN 'applied';
END $$;

-- Discard a dead letter, or prune a finished job.
CREATE OR REPLACE FUNCTION _remove_finished(j job, p_verb text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF j.state < STATE_DONE OR (p_verb = 'discard' AND j.state <> STATE_DEAD) THEN
        RETURN 'wrong state';
    ELSIF j.state <> STATE_DEAD AND _is_needed(j) THEN
        RETURN 'conflict';
    END IF;
    -- A row of the past is never changed, and it stays until its segment is emptied: its job is brought back, and goes from here.
    IF NOT EXISTS (SELECT FROM job WHERE n = j.n) THEN
        PERFORM _recall(j.id);
    END IF;
    PERFORM _drop(j, p_verb);
    RETURN 'applied';
END $$;

CREATE OR REPLACE FUNCTION _replay(j job, OUT effect text, OUT held_by uuid) LANGUAGE plpgsql AS $$
DECLARE
    k unique_key;
BEGIN
    IF j.state <> STATE_DEAD THEN
        effect := 'wrong state';
        RETURN;
    END IF;
    IF j.key IS NOT NULL THEN
        SELECT * INTO k FROM unique_key u WHERE u.queue = j.queue AND u.lane = j.lane AND u.task = j.task AND u.key = j.key;
        IF k.holder <> j.id AND (k.until IS NULL OR _at() < k.until) THEN
            effect := 'conflict';
            held_by := k.holder;
            RETURN;
        END IF;
        INSERT INTO unique_key (queue, lane, task, key, holder, mode, win, accepted_at)
        VALUES (j.queue, j.lane, j.task, j.key, j.id, j.mode, j.win, j.accepted_at)
        ON CONFLICT (queue, lane, task, key) DO UPDATE
        SET holder = j.id, mode = j.mode, win = j.win, accepted_at = j.accepted_at, follower = NULL, until = NULL;
    END IF;
    j.attempt := 0;
    j.crashes := 0;
    j.replays := j.replays + 1;
    j.hold_key := NULL;
    j.hold_reason := NULL;
    j.held_since := NULL;
    j.held_times := NULL;
    j.expires_at := NULL;
    j.finished_at := NULL;
    j.permille := NULL;
    j.message := NULL;
    j.kept := NULL;
    j.due_at := _at();
    FOR v_i IN 1 .. coalesce(cardinality(j.after_ids), 0) LOOP
        PERFORM _add_edge(_parent(j.after_ids[v_i]), j.n, j.after_on[v_i], false);
    END LOOP;
    PERFORM _make_waiting(_line_up(j), STATE_DEAD::smallint, 'replay');
    effect := 'applied';
END $$;

CREATE OR REPLACE FUNCTION _edit(
    j job, p_payload bytea, p_headers bytea, p_tags bytea, p_priority smallint, p_max_attempts integer
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    q queue;
BEGIN
    IF j.state NOT IN (STATE_BLOCKED, STATE_SCHEDULED, STATE_READY, STATE_DEAD) THEN
        RETURN 'wrong state';
    END IF;
    SELECT * INTO q FROM queue WHERE name = j.queue;
    IF j.state = STATE_READY AND q.laned THEN
        PERFORM _unfile(j);
    END IF;
    IF p_payload IS NOT NULL THEN
        PERFORM _count_bytes(j, octet_length(p_payload) - j.size);
        j.size := octet_length(p_payload);
        j.payload := p_payload;
    END IF;
    j.headers := coalesce(p_headers, j.headers);
    j.tags := coalesce(p_tags, j.tags);
    j.priority := coalesce(p_priority, j.priority);
    j.max_attempts := coalesce(p_max_attempts, j.max_attempts);
    PERFORM _transition(j, j.state, j.state, 'edit', j.reason);
    IF j.state = STATE_READY THEN
        IF p_priority IS NOT NULL THEN
            j.band := _band_of(q, j.priority, j.due_at);
        END IF;
        PERFORM _file(j, true);
    ELSE
        PERFORM _put(j);
    END IF;
    RETURN 'applied';
END $$;

-- Cancel waiting jobs, remove finished ones, oldest first.
CREATE OR REPLACE FUNCTION purge(p_now bigint, p_queue text, p_state smallint, p_limit bigint, OUT count bigint, OUT more boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    j job;
    v_jobs bigint[];
    v_n bigint;
BEGIN
    PERFORM _begin_exclusive(p_now);
    -- Oldest first, among the first 2,000 that the index of the state gives. Of finished ones, those of another state and those that
    -- are needed are passed over, however many: they would hide what stands behind them.
    IF p_state = STATE_READY THEN
        v_jobs := array(
            SELECT w.n FROM (
                SELECT u.n FROM ready o CROSS JOIN LATERAL generate_series(o.n, o.n + o.width - 1) u (n)
                WHERE o.queue = p_queue ORDER BY o.lane, o.band, o.seq, u.n LIMIT 2000) w
            ORDER BY w.n LIMIT p_limit + 1);
    ELSIF p_state < STATE_READY THEN
        v_jobs := array(
            SELECT w.n FROM (
                SELECT o.n FROM job o WHERE o.queue = p_queue AND o.waits = p_state
                ORDER BY o.due_at, o.seq LIMIT 2000) w
            ORDER BY w.n LIMIT p_limit + 1);
    ELSE
        v_jobs := array(
            SELECT w.n FROM (
                SELECT o.n FROM unnest(ARRAY[KEPT_PLAIN, KEPT_WITH_RESULT, KEPT_DEAD]::smallint[]) k (kept) CROSS JOIN LATERAL (
                    SELECT f.n FROM job f
                    WHERE f.queue = p_queue AND f.kept = k.kept AND f.state = p_state AND (p_state = STATE_DEAD OR NOT _is_needed(ROW(f.*)::job))
                    ORDER BY f.finished_at, f.n LIMIT 2000) o) w
            ORDER BY w.n LIMIT p_limit + 1);
    END IF;
    IF p_state IN (STATE_DONE, STATE_CANCELLED) THEN
        v_jobs := _recall_oldest(p_queue, p_state, v_jobs, p_limit + 1);
    END IF;
    more := cardinality(v_jobs) > p_limit;
    count := 0;
    FOREACH v_n IN ARRAY v_jobs[:p_limit] LOOP
        SELECT * INTO j FROM job WHERE n = v_n AND state = p_state AND pruned_until IS NULL;
        CONTINUE WHEN NOT FOUND;   -- the end of one before it has moved it
        count := count + 1;
        IF p_state <= STATE_READY THEN
            PERFORM _cancel_waiting(j, 'purge', 'purged');
        ELSE
            PERFORM _drop(j, 'purge');
        END IF;
    END LOOP;
    PERFORM _ring();
END $$;

-- in: finished jobs of a queue, by number, and how many are wanted. out: the oldest of them and of those of the past, which are
-- brought back: among the first 2,000 of each kind.
CREATE OR REPLACE FUNCTION _recall_oldest(p_queue text, p_state smallint, p_jobs bigint[], p_limit bigint) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    v_segments smallint[] := (SELECT segments FROM meta);
    v_id uuid;
    v_n bigint;
    v_found bigint[] := '{}';
BEGIN
    IF cardinality(v_segments) = 0 THEN
        RETURN p_jobs;
    END IF;
    FOR v_n, v_id IN
        SELECT w.n, w.id FROM (
            SELECT u.n, NULL::uuid AS id FROM unnest(p_jobs) u (n)
            UNION ALL
            SELECT o.n, o.id FROM unnest(ARRAY[KEPT_PLAIN, KEPT_WITH_RESULT]::smallint[]) k (kept) LEFT JOIN horizon h ON h.queue = p_queue AND h.kind = k.kept
            CROSS JOIN LATERAL (
                SELECT p.n, p.id FROM past p
                WHERE p.segment = ANY (v_segments) AND p.queue = p_queue AND p.kept = k.kept AND p.kept IS NOT NULL AND p.state = p_state
                  AND (p.finished_at, p.n) > (coalesce(h.finished_at, -1), coalesce(h.n, -1))
                ORDER BY p.finished_at, p.n LIMIT 2000) o) w
        ORDER BY w.n LIMIT p_limit
    LOOP
        CONTINUE WHEN v_id IS NOT NULL AND cardinality(v_found) < p_limit - 1 AND NOT _recall(v_id);
        v_found := v_found || v_n;
    END LOOP;
    RETURN v_found;
END $$;

-- Make held jobs of this key ready. No sort: with statistics of a table that was empty, reading all that is scheduled (`job_due`) and
-- sorting it looks as cheap as reading what is held, in order.
CREATE OR REPLACE FUNCTION unhold(p_now bigint, p_key text, p_limit bigint, OUT count bigint, OUT more boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_sort = off AS $$
DECLARE
    j job;
    v_jobs bigint[];
    v_n bigint;
BEGIN
    PERFORM _begin_exclusive(p_now);
    v_jobs := array(SELECT n FROM job WHERE hold_key = p_key AND waits = STATE_SCHEDULED ORDER BY due_at, seq LIMIT p_limit + 1);
    more := cardinality(v_jobs) > p_limit;
    count := least(cardinality(v_jobs), p_limit);
    FOREACH v_n IN ARRAY v_jobs[:p_limit] LOOP
        SELECT * INTO j FROM job WHERE n = v_n;
        j.due_at := _at();
        PERFORM _promote(j, 'unhold');
    END LOOP;
    PERFORM _ring();
END $$;

-- Pause or resume a queue or a lane. out: whether the queue exists.
CREATE OR REPLACE FUNCTION set_paused(p_now bigint, p_queue text, p_lane text, p_paused boolean) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM _begin_exclusive(p_now);
    IF NOT EXISTS (SELECT FROM queue WHERE name = p_queue) THEN
        RETURN false;
    ELSIF p_lane IS NULL THEN
        UPDATE queue SET paused = p_paused WHERE name = p_queue;
    ELSE
        INSERT INTO lane (queue, name, paused) VALUES (p_queue, p_lane, p_paused)
        ON CONFLICT (queue, name) DO UPDATE SET paused = p_paused;
        PERFORM _refresh(p_queue, p_lane);
    END IF;
    IF NOT p_paused THEN
        PERFORM _note(p_queue);
    END IF;
    PERFORM _ring();
    RETURN true;
END $$;
