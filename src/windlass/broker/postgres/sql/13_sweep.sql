-- Sweep: what only time brings about, in bounded steps.
--
-- Keys touched: meta (the clocks), and whatever is due. Cost: at most p_limit items, and a look at each queue and each
-- live session.

-- For how long a janitor waits for the namespace, in ms. in: how long ago the last pass was (NULL: there was none). Others wait behind it, so it holds them
-- up for a tenth of the time at most, and comes again. But before the gap counts as an outage (`_liveness_move`) there must be a pass: past a third of
-- that time it waits for whatever is left of it, which means for the steps that are under way.
CREATE OR REPLACE FUNCTION _sweep_patience(p_since bigint, p_ttl bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT least(greatest(20, p_since / 10000, CASE WHEN p_since >= p_ttl / 15 THEN (p_ttl / 5 - p_since) / 1000 END), 60000)
$$;

-- in: how many items at most; the pace of the fleet. out: the head (no job; with p_keep_dead the dead letters that stay), then every transition but those of due jobs.
CREATE OR REPLACE FUNCTION sweep(
    p_now bigint, p_limit bigint, p_every bigint, p_ended_kept bigint, p_keep_dead boolean,
    OUT promoted integer, OUT reaped text[], OUT pruned integer, OUT more boolean, OUT schedules_due boolean,
    OUT early boolean, OUT since bigint, OUT stepped_back bigint, OUT job uuid, OUT queue text, OUT task text, OUT lane text, OUT move text,
    OUT before smallint, OUT after smallint, OUT reason text, OUT overdue uuid[]
) RETURNS SETOF record LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    m meta;
    v_at bigint := _seen_at(p_now);
    v_left bigint := p_limit;
    v_name text;
BEGIN
    promoted := 0;
    pruned := 0;
    reaped := '{}';
    more := false;
    schedules_due := false;
    stepped_back := 0;
    -- One of many janitors comes early nearly always: it looks before it takes the lock, and again with it.
    SELECT * INTO m FROM meta;
    early := _is_early(v_at - m.swept_at, p_every, m.left_work);
    IF NOT early AND p_every > 0 THEN
        early := NOT _lock_within(_sweep_patience(v_at - m.swept_at, m.session_ttl));
    END IF;
    IF NOT early THEN
        PERFORM _begin_exclusive(p_now);
        SELECT * INTO m FROM meta;
        v_at := _at();
        early := _is_early(v_at - m.swept_at, p_every, m.left_work);
    END IF;
    since := greatest(0, coalesce(v_at - m.swept_at, 0));
    IF early THEN
        RETURN NEXT;
        RETURN;
    END IF;
    stepped_back := greatest(0, m.mark - v_at);
    IF stepped_back > 0 THEN
        PERFORM _keep_gone(m.mark);
    END IF;
    UPDATE meta SET mark = v_at, swept_at = v_at, live = live + _liveness_move(v_at - m.swept_at, m.session_ttl);
    -- Ends that this pass brings about are told within its limit, not each with a fan-out of its own.
    PERFORM set_config('windlass.telling', 'on', true), set_config('windlass.recording', 'on', true);
    SELECT r.reaped, r.remaining INTO reaped, v_left FROM _reap(v_left) r;
    v_left := v_left - _end_deadlines(v_left);
    promoted := _promote_due(v_left, NULL);
    v_left := v_left - promoted;
    v_left := v_left - _expire_waiting(v_left);
    v_left := v_left - _resolve_fates(0, v_left);
    SELECT r.pruned, r.remaining INTO pruned, v_left FROM _prune(v_left, p_keep_dead) r;
    overdue := CASE WHEN p_keep_dead THEN _overdue_letters() END;
    PERFORM set_config('windlass.telling', '', true), set_config('windlass.recording', '', true);
    v_left := v_left - _forget(v_left, p_ended_kept);
    FOR v_name IN SELECT q.name FROM queue q WHERE q.laned ORDER BY q.i LOOP
        PERFORM _refresh_due(v_name, stepped_back > 0);
        PERFORM _forget_idle(v_name);
    END LOOP;
    PERFORM _turn_segments();
    PERFORM _raise_floors();
    PERFORM _fold_counts();
    PERFORM _number_events();
    more := v_left <= 0 OR EXISTS (SELECT FROM fate);
    UPDATE meta SET left_work = more WHERE left_work <> more;
    schedules_due := _schedules_due();
    RETURN NEXT;
    RETURN QUERY SELECT NULL::integer, NULL::text[], NULL::integer, NULL::boolean, NULL::boolean, NULL::boolean, NULL::bigint,
        NULL::bigint,
        t.job, t.queue, t.task, t.lane, t.move, t.before, t.after, t.reason, NULL::uuid[]
        FROM _take_moved() t WHERE t.move <> 'due';
    UPDATE meta SET cleared = nextval('number');
    PERFORM _ring();
END $$;

CREATE OR REPLACE FUNCTION _schedules_due() RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM schedule WHERE next_at <= _at() AND NOT paused)
$$;

-- End silent sessions as lost, and go on returning the leases of ended ones.
CREATE OR REPLACE FUNCTION _reap(p_limit bigint, OUT reaped text[], OUT remaining bigint) LANGUAGE plpgsql AS $$
DECLARE
    v_live bigint := (SELECT live FROM meta);
    v_id text;
    v_seen bigint;
BEGIN
    reaped := '{}';
    remaining := p_limit;
    -- Locked, they stay as silent as they were found. One that another step has locked is giving a sign of life.
    FOR v_id, v_seen IN
        SELECT id, seen FROM session WHERE ended_at IS NULL AND v_live - seen > ttl ORDER BY i LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED
    LOOP
        PERFORM _mark_ended(v_id,
            convert_to(format('{"kind":"lost","detail":"silent for %s s"}', (v_live - v_seen) / 1000000), 'UTF8'),
            'lost', NULL, NULL);
        reaped := reaped || v_id;
        remaining := remaining - 1;
    END LOOP;
    FOR v_id IN SELECT s.id FROM session s WHERE s.ended_at IS NOT NULL AND _has_leases(s.id) ORDER BY s.i
    LOOP
        EXIT WHEN remaining <= 0;
        remaining := remaining - _return_leases(v_id, remaining);
    END LOOP;
END $$;

-- End deadline leases that ran out.
CREATE OR REPLACE FUNCTION _end_deadlines(p_limit bigint) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    j job;
    v_at bigint := _at();
    v_n bigint;
    v_count integer := 0;
BEGIN
    FOR v_n IN
        SELECT o.n FROM (SELECT * FROM lease WHERE deadline <= v_at ORDER BY deadline, n LIMIT p_limit) l
        CROSS JOIN LATERAL (SELECT n FROM job WHERE n BETWEEN l.n AND l.n + l.width - 1 AND state = STATE_READY OFFSET 0) o
        ORDER BY l.deadline, o.n LIMIT p_limit
    LOOP
        SELECT * INTO j FROM job WHERE n = v_n FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        CONTINUE WHEN _was_settled_here(j.id);
        j := _as_leased(j);
        PERFORM _end_lease(j, _rule_deadline(_facts(j)), false,
            convert_to('{"kind":"deadline","detail":"not extended in time"}', 'UTF8'), 'deadline');
        PERFORM _drop_if_unkept(v_n);
        v_count := v_count + 1;
    END LOOP;
    RETURN v_count;
END $$;

-- Waiting jobs that were not started in time are dead.
CREATE OR REPLACE FUNCTION _expire_waiting(p_limit bigint) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    j job;
    v_at bigint := _at();
    v_n bigint;
    v_count integer := 0;
BEGIN
    FOR v_n IN
        -- Where not all fit, those that expired first; in the order of their arrival.
        SELECT e.n FROM (SELECT n FROM job WHERE timer <= v_at AND state BETWEEN STATE_BLOCKED AND STATE_READY ORDER BY timer, n LIMIT p_limit) e ORDER BY e.n
    LOOP
        SELECT * INTO j FROM job WHERE n = v_n;
        v_count := v_count + 1;
        -- The end of one before it may have moved it.
        CONTINUE WHEN j.state > STATE_READY;
        PERFORM _expire(j);
    END LOOP;
    RETURN v_count;
END $$;

-- Remove finished jobs that are to be kept no longer, and results before them.
CREATE OR REPLACE FUNCTION _prune(p_limit bigint, p_keep_dead boolean, OUT pruned integer, OUT remaining bigint) LANGUAGE plpgsql AS $$
DECLARE
    q queue;
    j job;
    v_at bigint := _at();
    v_window bigint := (SELECT resend_window FROM meta);
    -- Counting takes long. A queue may have more jobs than it keeps if one of its own has ended, and any queue if the last pass left work or its
    -- settings are new (`left_work`), or where jobs wait for each other: the end of a child lets its parent go.
    v_ended text[] := array(SELECT DISTINCT d.queue FROM delta d, meta m WHERE d.i > m.cleared AND d.state IN (STATE_DONE, STATE_CANCELLED) AND d.n > 0);
    v_may_be_over boolean := (SELECT left_work FROM meta) OR EXISTS (SELECT FROM edge);
    v_count integer;
BEGIN
    pruned := 0;
    remaining := p_limit;
    FOR q IN SELECT * FROM queue ORDER BY i LOOP
        EXIT WHEN remaining <= 0;
        PERFORM _retire(q, 1000);
        v_count := _forget_past(q, KEPT_PLAIN::smallint, v_at - q.retention, remaining);
        v_count := v_count + _forget_past(q, KEPT_WITH_RESULT::smallint, v_at - greatest(q.retention, q.result_ttl), remaining - v_count);
        pruned := pruned + v_count;
        remaining := remaining - v_count;
        EXIT WHEN remaining <= 0;
        IF q.retention_count IS NULL AND q.emit < EMIT_ALL THEN
            v_count := _prune_plain(q.name, KEPT_PLAIN::smallint, v_at - greatest(q.retention, v_window), remaining);
            v_count := v_count + _prune_plain(q.name, KEPT_WITH_RESULT::smallint,
                v_at - greatest(q.retention, q.result_ttl, v_window), remaining - v_count);
            pruned := pruned + v_count;
            remaining := remaining - v_count;
            EXIT WHEN remaining <= 0;
        END IF;
        IF q.retention_count IS NOT NULL AND (q.name = ANY (v_ended) OR v_may_be_over) THEN
            v_count := _prune_over(q, remaining);
            pruned := pruned + v_count;
            remaining := remaining - v_count;
        END IF;
        FOR j IN
            (SELECT * FROM job WHERE queue = q.name AND kept = KEPT_PLAIN AND finished_at <= v_at - q.retention)
            UNION ALL
            (SELECT * FROM job WHERE queue = q.name AND kept = KEPT_WITH_RESULT AND finished_at <= v_at - greatest(q.retention, q.result_ttl))
            UNION ALL
            (SELECT * FROM job WHERE queue = q.name AND kept = KEPT_DEAD AND finished_at <= v_at - q.dead_retention AND NOT p_keep_dead)
            ORDER BY finished_at, n
        LOOP
            EXIT WHEN remaining <= 0;
            CONTINUE WHEN _is_needed(j) OR NOT EXISTS (SELECT FROM job o WHERE o.n = j.n AND o.kept IS NOT NULL);
            PERFORM _drop(j, 'prune');
            pruned := pruned + 1;
            remaining := remaining - 1;
        END LOOP;
    END LOOP;
    FOR q IN SELECT * FROM queue ORDER BY i LOOP
        remaining := remaining - _forget_past(q, HORIZON_OF_RESULTS::smallint, v_at - q.result_ttl, remaining);
        remaining := remaining - _drop_plain_results(q.name, v_at - q.result_ttl, remaining);
        FOR j IN
            SELECT * FROM job WHERE queue = q.name AND kept = KEPT_WITH_RESULT AND finished_at <= v_at - q.result_ttl ORDER BY finished_at, n
        LOOP
            EXIT WHEN remaining <= 0;
            CONTINUE WHEN _is_needed(j);
            PERFORM _count_bytes(j, -octet_length(j.result)::bigint);
            UPDATE job SET result = NULL, kept = KEPT_PLAIN, size = size - octet_length(j.result) WHERE n = j.n;
            remaining := remaining - 1;
        END LOOP;
    END LOOP;
END $$;

-- Remove the oldest finished jobs of a queue that keeps a number of them. Those that are needed do not count, and stay. out: how many.
CREATE OR REPLACE FUNCTION _prune_over(q queue, p_limit bigint) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    j job;
    -- Those that went to the past before the queue had a bound count too. The oldest of them are brought back.
    v_past bigint := _count_past(q.name, q.retention_count + p_limit);
    v_over bigint := (SELECT count(*) FROM job WHERE queue = q.name AND kept IN (KEPT_PLAIN, KEPT_WITH_RESULT)) + v_past - q.retention_count;
    v_needed bigint := 0;
    v_count integer := 0;
BEGIN
    IF v_over <= 0 THEN
        RETURN 0;
    END IF;
    IF v_past > 0 THEN
        PERFORM _recall(o.id) FROM (
            SELECT p.id FROM _oldest_past(q.name, least(v_over, p_limit)) p ORDER BY p.finished_at, p.n LIMIT least(v_over, p_limit)) o;
    END IF;
    IF EXISTS (SELECT FROM edge) OR EXISTS (SELECT FROM fate) THEN
        v_needed := (SELECT count(*) FROM job o WHERE o.queue = q.name AND o.kept IN (KEPT_PLAIN, KEPT_WITH_RESULT) AND o.has_children AND _is_needed(o));
    END IF;
    FOR j IN
        (SELECT * FROM job WHERE queue = q.name AND kept = KEPT_PLAIN ORDER BY finished_at, n LIMIT v_over)
        UNION ALL
        (SELECT * FROM job WHERE queue = q.name AND kept = KEPT_WITH_RESULT ORDER BY finished_at, n LIMIT v_over)
        ORDER BY finished_at, n
    LOOP
        EXIT WHEN v_count >= least(v_over - v_needed, p_limit);
        CONTINUE WHEN _is_needed(j);
        PERFORM _drop(j, 'prune');
        v_count := v_count + 1;
    END LOOP;
    RETURN v_count;
END $$;

-- out: the oldest dead letters of each queue that nothing needs and whose time is over.
CREATE OR REPLACE FUNCTION _overdue_letters() RETURNS uuid[] LANGUAGE sql STABLE AS $$
    SELECT array_agg(o.id ORDER BY o.i, o.finished_at, o.n) FROM (
        SELECT q.i, f.* FROM queue q CROSS JOIN LATERAL (
            SELECT j.id, j.n, j.finished_at FROM job j
            WHERE j.queue = q.name AND j.kept = KEPT_DEAD AND j.finished_at <= _at() - q.dead_retention AND NOT _is_needed(ROW(j.*)::job)
            ORDER BY j.finished_at, j.n LIMIT OVERDUE) f) o
$$;

-- Remove finished jobs of a queue that nobody ever depended on, all at once: those that ended before a time, with or
-- without a result (p_kept), past the resend window. out: how many.
CREATE OR REPLACE FUNCTION _prune_plain(p_queue text, p_kept smallint, p_before bigint, p_limit bigint) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    v_gone bigint[];
BEGIN
    WITH old AS MATERIALIZED (
        SELECT ctid AS place FROM job WHERE queue = p_queue AND kept = p_kept AND finished_at <= p_before AND NOT has_children
        ORDER BY finished_at, n LIMIT greatest(0, p_limit)
    ), gone AS (
        DELETE FROM job j USING old o WHERE j.ctid = o.place RETURNING j.n, j.task, j.size
    ), counted AS (
        INSERT INTO delta (queue, task, state, n, bytes) SELECT p_queue, g.task, 0, 0, -sum(g.size) FROM gone g GROUP BY g.task
    )
    SELECT array_agg(g.n) INTO v_gone FROM gone g;
    IF v_gone IS NULL THEN
        RETURN 0;
    END IF;
    DELETE FROM log WHERE n = ANY (v_gone);
    DELETE FROM edge WHERE child = ANY (v_gone);
    RETURN cardinality(v_gone);
END $$;

-- Forget results of a queue's jobs that nobody ever depended on and that ended before a time. out: how many.
CREATE OR REPLACE FUNCTION _drop_plain_results(p_queue text, p_before bigint, p_limit bigint) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    v_count integer;
BEGIN
    WITH old AS MATERIALIZED (
        SELECT ctid AS place, octet_length(result) AS bytes FROM job
        WHERE queue = p_queue AND kept = KEPT_WITH_RESULT AND finished_at <= p_before AND NOT has_children
        ORDER BY finished_at, n LIMIT greatest(0, p_limit)
    ), emptied AS (
        UPDATE job j SET result = NULL, kept = KEPT_PLAIN, size = j.size - o.bytes FROM old o WHERE j.ctid = o.place RETURNING j.task, o.bytes
    ), counted AS (
        INSERT INTO delta (queue, task, state, n, bytes) SELECT p_queue, e.task, 0, 0, -sum(e.bytes) FROM emptied e GROUP BY e.task
    )
    SELECT count(*) INTO v_count FROM emptied;
    RETURN v_count;
END $$;

-- Drop small records whose time is over: keys, ids, ended sessions. out: how many.
CREATE OR REPLACE FUNCTION _forget(p_limit bigint, p_ended_kept bigint) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    v_at bigint := _at();
    v_left bigint := p_limit;
    v_count bigint;
    v_gone bigint[];
BEGIN
    DELETE FROM unique_key WHERE ctid = ANY (array(SELECT ctid FROM unique_key WHERE until <= v_at LIMIT v_left));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_left := v_left - v_count;
    WITH old AS MATERIALIZED (
        SELECT ctid AS place FROM job WHERE timer <= v_at AND state > STATE_RUNNING ORDER BY timer, n LIMIT v_left
    ), gone AS (
        DELETE FROM job j USING old o WHERE j.ctid = o.place RETURNING j.n
    )
    SELECT array_agg(g.n) INTO v_gone FROM gone g;
    IF v_gone IS NOT NULL THEN
        DELETE FROM log WHERE n = ANY (v_gone);
        DELETE FROM edge WHERE child = ANY (v_gone);
        v_left := v_left - cardinality(v_gone);
    END IF;
    DELETE FROM absorbed WHERE id = ANY (array(SELECT id FROM absorbed WHERE until <= v_at LIMIT v_left));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_left := v_left - v_count;
    WITH gone AS (
        DELETE FROM session WHERE id IN (
            SELECT s.id FROM session s
            WHERE s.ended_at <= v_at - p_ended_kept AND NOT _has_leases(s.id) LIMIT v_left) RETURNING id
    ), forgotten AS (
        DELETE FROM answered a USING gone g WHERE a.session = g.id
    )
    SELECT count(*) INTO v_count FROM gone;
    RETURN p_limit - v_left + v_count;
END $$;

-- Fold the rows of counts into totals. Rows of transactions under way are not seen, and stay.
CREATE OR REPLACE FUNCTION _fold_counts() RETURNS void LANGUAGE sql AS $$
    WITH gone AS (DELETE FROM delta WHERE i > (SELECT cleared FROM meta) RETURNING *)
    INSERT INTO total AS t (queue, task, state, n, bytes)
    SELECT queue, task, state, sum(n), sum(bytes) FROM gone GROUP BY queue, task, state
    ON CONFLICT (queue, task, state) DO UPDATE SET n = t.n + excluded.n, bytes = t.bytes + excluded.bytes
$$;

-- Give numbers to events that are committed, in the order in which they were written, and keep the newest.
CREATE OR REPLACE FUNCTION _number_events() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_next bigint;
    v_count bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM event_in WHERE i > (SELECT cleared FROM meta)) THEN
        RETURN;
    END IF;
    SELECT next INTO v_next FROM event_end FOR UPDATE;
    WITH gone AS (DELETE FROM event_in WHERE i > (SELECT cleared FROM meta) RETURNING *)
    INSERT INTO event (i, at, job, task, queue, lane, move, before, after, reason, outcome, attempt, fence, runtime, waited)
    SELECT v_next - 1 + row_number() OVER (ORDER BY i), at, job, task, queue, lane, move, before, after, reason, outcome,
        attempt, fence, runtime, waited FROM gone;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    UPDATE event_end SET next = v_next + v_count;
    DELETE FROM event WHERE i < v_next + v_count - (SELECT events_kept FROM meta);
END $$;
