-- Accepting jobs one by one: groups that come into being whole or not at all, unique keys, edges.
--
-- Keys touched: job, unique_key, absorbed, edge, delta, event_in; with lanes ring and seat. Cost: O(jobs log n).

-- The receipt of an id that was sent before; no row if it is new.
CREATE OR REPLACE FUNCTION _known(p_id uuid) RETURNS receipt LANGUAGE plpgsql STABLE AS $$
DECLARE
    r receipt;
    v_until bigint;
BEGIN
    SELECT coalesce(pruned_until, 9223372036854775807) INTO v_until FROM job WHERE id = p_id;
    IF NOT FOUND THEN
        SELECT coalesce(p.pruned_until, 9223372036854775807) INTO v_until FROM _past(p_id) p WHERE p.n IS NOT NULL;
    END IF;
    IF v_until = 9223372036854775807 THEN
        r.status := 'duplicate';
        r.of := p_id;
        RETURN r;
    END IF;
    SELECT status, of INTO r.status, r.of FROM absorbed WHERE id = p_id AND until > _at();
    IF r.status IS NULL AND v_until > _at() THEN
        r.status := 'duplicate';
        r.of := p_id;
    END IF;
    RETURN r;
END $$;

-- Whether so many bytes more would go beyond the limit.
CREATE OR REPLACE FUNCTION _is_full(p_limit bigint, p_more bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT p_limit IS NOT NULL AND p_more + coalesce((SELECT sum(bytes) FROM total), 0)
        + coalesce((SELECT sum(bytes) FROM delta WHERE i > (SELECT cleared FROM meta)), 0) > p_limit
$$;

-- The jobs of a group that can never be free: in a cycle, or behind one. Calls under one key count as one job, and of an id that
-- comes twice the first call is what is kept.
CREATE OR REPLACE FUNCTION _in_cycle(g asked[]) RETURNS uuid[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_calls asked[] := array(SELECT f.u FROM (SELECT DISTINCT ON (u.id) u.i, u FROM unnest(g) u ORDER BY u.id, u.i) f ORDER BY f.i);
    v_count integer := cardinality(v_calls);
    v_ids uuid[] := array(SELECT u.id FROM unnest(v_calls) u ORDER BY u.i);
    v_stands integer[] := '{}';
    v_free boolean[] := array_fill(false, ARRAY[v_count]);
    v_moved boolean := true;
    v_waits boolean;
    v_parent uuid;
    v_p integer;
    v_at integer;
    v_back boolean := false;
BEGIN
    FOR v_i IN 1 .. v_count LOOP
        v_p := v_i;
        IF (v_calls[v_i]).key IS NOT NULL THEN
            v_p := array_position(v_ids, (
                SELECT u.id FROM unnest(v_calls) u
                WHERE (u.queue, u.lane, u.task, u.key) = ((v_calls[v_i]).queue, (v_calls[v_i]).lane, (v_calls[v_i]).task, (v_calls[v_i]).key)
                ORDER BY u.i LIMIT 1));
        END IF;
        v_stands := v_stands || v_p;
    END LOOP;
    WHILE v_moved LOOP
        v_moved := false;
        FOR v_i IN 1 .. v_count LOOP
            v_at := CASE WHEN v_back THEN v_count + 1 - v_i ELSE v_i END;
            CONTINUE WHEN v_free[v_at] OR v_stands[v_at] <> v_at;
            v_waits := false;
            FOREACH v_parent IN ARRAY coalesce((v_calls[v_at]).after_ids, '{}') LOOP
                v_p := v_stands[array_position(v_ids, v_parent)];
                IF v_p IS NOT NULL AND NOT v_free[v_p] THEN
                    v_waits := true;
                    EXIT;
                END IF;
            END LOOP;
            IF NOT v_waits THEN
                v_free[v_at] := true;
                v_moved := true;
            END IF;
        END LOOP;
        v_back := NOT v_back;   -- a chain, whichever of its ends comes first, is done in two
    END LOOP;
    RETURN array(SELECT v_ids[i] FROM generate_series(1, v_count) i WHERE NOT v_free[v_stands[i]]);
END $$;

-- in: a group; whether it may go beyond `max_size`; whether it will line up in `inbox`, so that what waits there is known. out: receipts of those
-- that cannot be accepted, with the reason.
CREATE OR REPLACE FUNCTION _refusals(g asked[], p_may_fill boolean, p_here boolean) RETURNS SETOF receipt LANGUAGE plpgsql STABLE AS $$
DECLARE
    a asked;
    r receipt;
    v_new asked[] := '{}';
    v_ids uuid[] := '{}';
    v_cyclic uuid[] := '{}';
    v_inside boolean := false;
    v_full boolean := false;
    v_limit bigint;
    v_parent uuid;
    v_unknown uuid;
BEGIN
    FOREACH a IN ARRAY g LOOP
        v_ids := v_ids || a.id;
        IF (_known(a.id)).status IS NULL AND NOT (p_here AND _is_in_inbox(a.id)) THEN
            v_new := v_new || a;
        END IF;
    END LOOP;
    FOREACH a IN ARRAY v_new LOOP
        v_inside := v_inside OR a.after_ids && v_ids;
    END LOOP;
    IF v_inside THEN
        v_cyclic := _in_cycle(v_new);
    END IF;
    IF NOT p_may_fill THEN
        SELECT max_size INTO v_limit FROM meta;
        v_full := v_limit IS NOT NULL AND _is_full(v_limit, (SELECT sum(octet_length(u.payload)) FROM unnest(g) u));
    END IF;
    FOREACH a IN ARRAY v_new LOOP
        r := NULL;
        v_unknown := NULL;
        FOREACH v_parent IN ARRAY coalesce(a.after_ids, '{}') LOOP
            IF NOT v_parent = ANY (v_ids) AND (_known(v_parent)).status IS NULL AND NOT (p_here AND _is_in_inbox(v_parent)) THEN
                v_unknown := v_parent;
                EXIT;
            END IF;
        END LOOP;
        IF NOT EXISTS (SELECT FROM queue WHERE name = a.queue) THEN
            r.refusal := 'unknown queue';
            r.why := format('queue "%s" is not declared; declared queues: %s', a.queue,
                coalesce((SELECT string_agg(name, ', ' ORDER BY name) FROM queue), 'none'));
        ELSIF v_unknown IS NOT NULL THEN
            r.refusal := 'unknown parent';
            r.why := format('parent %s is not known', v_unknown);
        ELSIF a.id = ANY (v_cyclic) THEN
            r.refusal := 'cycle';
            r.why := format('job %s waits for itself through its parents', a.id);
        ELSIF v_full THEN
            r.refusal := 'store full';
            r.why := format('the store is at its limit of %s bytes', v_limit);
        END IF;
        IF r.refusal IS NOT NULL THEN
            r.i := a.i;
            r.status := 'refused';
            r.of := a.id;
            RETURN NEXT r;
        END IF;
    END LOOP;
END $$;

-- Accept groups, each by itself: one receipt a job, in their order. p_ends: where each group ends.
CREATE OR REPLACE FUNCTION _accept_groups(p_ends integer[], p_jobs asked[]) RETURNS receipt[] LANGUAGE plpgsql AS $$
DECLARE
    v_from integer := 1;
    v_end integer;
    v_receipts receipt[] := '{}';
BEGIN
    FOREACH v_end IN ARRAY p_ends LOOP
        v_receipts := v_receipts || array(SELECT r FROM _enqueue_group(p_jobs[v_from : v_end]) r);
        v_from := v_end + 1;
    END LOOP;
    RETURN v_receipts;
END $$;

-- Accept a group, or refuse it whole: one receipt a job, in the group's order.
CREATE OR REPLACE FUNCTION _enqueue_group(g asked[]) RETURNS SETOF receipt LANGUAGE plpgsql AS $$
DECLARE
    v_refused receipt[];
BEGIN
    PERFORM _take_in_before(g);
    v_refused := array(SELECT r FROM _refusals(g, false, false) r);
    IF cardinality(v_refused) = 0 THEN
        RETURN QUERY SELECT * FROM _accept(g, NULL);
        RETURN;
    END IF;
    RETURN QUERY SELECT * FROM _refused_whole(g, v_refused);
END $$;

-- The receipts of a group that falls with some of its jobs.
CREATE OR REPLACE FUNCTION _refused_whole(g asked[], p_refused receipt[]) RETURNS SETOF receipt LANGUAGE sql AS $$
    SELECT w.i, 'refused', NULL::uuid, coalesce(r.refusal, 'another job of its group was refused'),
           coalesce(r.why, format('job %s of its group was refused', (p_refused[1]).of))
    FROM unnest(g) w
    LEFT JOIN LATERAL (SELECT x.refusal, x.why FROM unnest(p_refused) x WHERE x.of = w.id ORDER BY x.i DESC LIMIT 1) r ON true
    ORDER BY w.i
$$;

-- Create the jobs of a group that has been found acceptable. First every call is answered as its key says, in order; then those that
-- became jobs are tied to their parents and placed. So a parent may come after its child, and an edge to an absorbed
-- call leads to the job that stands for it.
CREATE OR REPLACE FUNCTION _accept(g asked[], p_parent uuid) RETURNS SETOF receipt LANGUAGE plpgsql AS $$
DECLARE
    a asked;
    r receipt;
    v_created bigint[] := '{}';
    v_n bigint;
BEGIN
    FOREACH a IN ARRAY g LOOP
        r := _known(a.id);
        IF r.status IS NULL THEN
            r := _accept_call(a, p_parent);
            IF r.status = 'created' THEN
                SELECT v_created || n INTO v_created FROM job WHERE id = a.id;
            END IF;
        END IF;
        r.i := a.i;
        RETURN NEXT r;
    END LOOP;
    FOREACH v_n IN ARRAY v_created LOOP
        PERFORM _place(v_n);
    END LOOP;
END $$;

-- Accept one new call, as its key says (`windlass.core.dedup`).
CREATE OR REPLACE FUNCTION _accept_call(a asked, p_parent uuid) RETURNS receipt LANGUAGE plpgsql AS $$
DECLARE
    m record;
    h job;
BEGIN
    IF a.status = 'duplicate' THEN   -- so it was answered; but what stands for it may itself have been absorbed since
        RETURN _absorb(a.id, 'duplicate', coalesce((_known(a.of)).of, a.of));
    END IF;
    m := _under_key(a);
    CASE m.does
        WHEN 'create' THEN
            RETURN _create(a, p_parent, NULL);
        WHEN 'replace' THEN
            SELECT * INTO h FROM job WHERE id = m.of;
            RETURN _replace(h, a);
        WHEN 'follow' THEN
            UPDATE unique_key u SET follower = a.id
            WHERE u.queue = a.queue AND u.lane = a.lane AND u.task = a.task AND u.key = a.key;
            RETURN _create(a, p_parent, m.of);
        ELSE
            RETURN _absorb(a.id, 'duplicate', m.of);
    END CASE;
END $$;

-- in: a new call. out: what it does under its key (`_rule_key`), to which job, and the state of the key's holder (NULL: there is none).
CREATE OR REPLACE FUNCTION _under_key(a asked, OUT does text, OUT of uuid, OUT state smallint) LANGUAGE plpgsql STABLE AS $$
DECLARE
    k unique_key;
    h job;
BEGIN
    does := 'create';
    IF a.key IS NULL THEN
        RETURN;
    END IF;
    SELECT * INTO k FROM unique_key u WHERE u.queue = a.queue AND u.lane = a.lane AND u.task = a.task AND u.key = a.key;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM aftermath WHERE job = k.holder) THEN   -- it has ended; only what follows from that is yet to come
        IF k.follower IS NULL THEN
            k.until := _held_until(k.mode, k.win, k.accepted_at, _at());
        ELSE
            k.holder := k.follower;
        END IF;
    END IF;
    -- What has the id of a holder that finished may be another job by now.
    SELECT * INTO h FROM job WHERE id = k.holder AND pruned_until IS NULL AND k.until IS NULL;
    h := _as_leased(h);
    state := coalesce(h.state, STATE_DONE::smallint);
    does := _rule_key(a.mode, state, NOT (k.until <= _at()) IS TRUE);
    of := k.holder;
    IF does = 'follow' AND k.follower IS NOT NULL THEN
        does := 'replace';
        of := k.follower;
    END IF;
END $$;

CREATE OR REPLACE FUNCTION _absorb(p_id uuid, p_status text, p_of uuid) RETURNS receipt LANGUAGE plpgsql AS $$
DECLARE
    v_until bigint := _at() + (SELECT resend_window FROM meta);
BEGIN
    INSERT INTO absorbed (id, status, of, until) VALUES (p_id, p_status, p_of, v_until)
    ON CONFLICT (id) DO UPDATE SET status = p_status, of = p_of, until = v_until;
    RETURN ROW(NULL, p_status, p_of, NULL, NULL)::receipt;
END $$;

-- A call becomes a job; it has yet to be placed. p_follows: the runner under its key that it waits for.
CREATE OR REPLACE FUNCTION _create(a asked, p_parent uuid, p_follows uuid) RETURNS receipt LANGUAGE plpgsql AS $$
DECLARE
    v_at bigint := _at();
    v_old bigint;
BEGIN
    IF a.lane <> '' THEN
        PERFORM _become_laned(a.queue);
    END IF;
    SELECT n INTO v_old FROM job WHERE id = a.id;
    IF FOUND THEN
        PERFORM _remove(v_old);   -- the memory of one that ended long ago under this id
    END IF;
    DELETE FROM absorbed WHERE id = a.id;
    INSERT INTO job (id, n, state, priority, max_attempts, revision, queue, lane, task, accepted_at, due_at, size,
        waiting_for, parent, flow, expires_at, key, mode, win, after_ids, after_on, headers, tags, payload, timer, error)
    VALUES (a.id, _draw_numbers(), -1, a.priority, a.max_attempts, a.revision, a.queue, a.lane, a.task, v_at,
        _due_at(a.run_at, a.delay, v_at), octet_length(a.payload), (p_follows IS NOT NULL)::integer, p_parent, a.flow, v_at + a.expires,
        a.key, a.mode, a.win, a.after_ids, a.after_on, a.headers, a.tags, a.payload, v_at + a.expires, a.dead);
    INSERT INTO delta (queue, task, state, n, bytes) VALUES (a.queue, a.task, 0, 0, octet_length(a.payload));
    IF p_follows IS NULL AND a.key IS NOT NULL THEN
        INSERT INTO unique_key (queue, lane, task, key, holder, mode, win, accepted_at)
        VALUES (a.queue, a.lane, a.task, a.key, a.id, a.mode, a.win, v_at)
        ON CONFLICT (queue, lane, task, key) DO UPDATE
        SET holder = a.id, mode = a.mode, win = a.win, accepted_at = v_at, follower = NULL, until = NULL;
    END IF;
    RETURN ROW(NULL, 'created', NULL, NULL, NULL)::receipt;
END $$;

-- Tie a new job to its parents and let it wait. One with an error is born dead.
CREATE OR REPLACE FUNCTION _place(p_n bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    j job;
BEGIN
    SELECT * INTO j FROM job WHERE n = p_n;
    IF j.after_ids IS NOT NULL THEN
        j := _tie(j);
    END IF;
    IF j.waiting_for < 0 THEN
        j.waiting_for := 0;
        UPDATE edge SET open = false WHERE child = j.n AND open;
        PERFORM _finish(j, STATE_UNPLACED::smallint, 'parent failed', STATE_CANCELLED::smallint, 'parent failed');
        PERFORM _drop_if_unkept(j.n);
    ELSIF j.error IS NOT NULL THEN
        PERFORM _finish(j, STATE_UNPLACED::smallint, 'enqueue', STATE_DEAD::smallint, 'arrived unfit to run');
    ELSIF j.waiting_for > 0 THEN
        j.state := STATE_BLOCKED;
        PERFORM _transition(j, STATE_UNPLACED::smallint, STATE_BLOCKED::smallint, 'enqueue');
        PERFORM _put(j);
    ELSE
        PERFORM _make_waiting(_line_up(j), STATE_UNPLACED::smallint, 'enqueue');
    END IF;
END $$;

-- Tie a job to its parents. out: the job; it waits for less than nobody if an edge to a failed parent cancels it.
CREATE OR REPLACE FUNCTION _tie(j job) RETURNS job LANGUAGE plpgsql AS $$
DECLARE
    p job;
    v_ids uuid[] := '{}';
    v_on smallint[] := '{}';
    v_id uuid;
    v_place integer;
    v_fate smallint;
    v_ruling text;
BEGIN
    FOR v_i IN 1 .. cardinality(j.after_ids) LOOP
        -- Two edges can lead to one job when a key has absorbed a parent: the later policy counts.
        v_id := coalesce((_known(j.after_ids[v_i])).of, j.after_ids[v_i]);
        v_place := array_position(v_ids, v_id);
        IF v_place IS NULL THEN
            v_ids := v_ids || v_id;
            v_on := v_on || j.after_on[v_i];
        ELSE
            v_on[v_place] := j.after_on[v_i];
        END IF;
    END LOOP;
    j.after_ids := v_ids;
    j.after_on := v_on;
    FOR v_i IN 1 .. cardinality(v_ids) LOOP
        p := _parent(v_ids[v_i]);
        v_fate := CASE
            WHEN p.n IS NULL THEN STATE_DONE
            WHEN p.pruned_until IS NULL THEN p.state
            WHEN p.state = STATE_DONE THEN STATE_DONE
            ELSE STATE_CANCELLED
        END;
        v_ruling := _rule_edge(v_on[v_i], v_fate);
        PERFORM _add_edge(p, j.n, v_on[v_i], v_ruling = 'wait');
        IF v_ruling = 'cancel' THEN
            j.waiting_for := -1;
            RETURN j;
        END IF;
        j.waiting_for := j.waiting_for + (v_ruling = 'wait')::integer;
    END LOOP;
    RETURN j;
END $$;

-- Let a waiting job take over what a newer call asks for; it keeps its id.
CREATE OR REPLACE FUNCTION _replace(j job, a asked) RETURNS receipt LANGUAGE plpgsql AS $$
DECLARE
    v_at bigint := _at();
    v_before smallint := j.state;
BEGIN
    IF v_before = STATE_READY THEN
        PERFORM _unfile(j);
    END IF;
    PERFORM _count_bytes(j, octet_length(a.payload) - j.size);
    j.size := octet_length(a.payload);
    j.payload := a.payload;
    j.headers := a.headers;
    j.tags := a.tags;
    j.mode := a.mode;
    j.win := a.win;
    j.priority := a.priority;
    j.max_attempts := a.max_attempts;
    j.revision := a.revision;
    j.due_at := _due_at(a.run_at, a.delay, v_at);
    j.expires_at := v_at + a.expires;
    j.attempt := 0;
    j.crashes := 0;
    j.started := false;
    j.hold_key := NULL;
    j.hold_reason := NULL;
    j.held_since := NULL;
    j.held_times := NULL;
    j.error := NULL;
    j.permille := NULL;
    j.message := NULL;
    IF j.has_memos THEN   -- what a step recorded was computed from the older payload
        DELETE FROM memo WHERE n = j.n;
        j.has_memos := false;
    END IF;
    UPDATE unique_key u SET mode = a.mode, win = a.win
    WHERE u.queue = j.queue AND u.lane = j.lane AND u.task = j.task AND u.key = j.key AND u.holder = j.id;
    IF v_before = STATE_BLOCKED THEN
        PERFORM _transition(j, v_before, v_before, 'replace');
        PERFORM _put(j);
    ELSIF v_before > STATE_BLOCKED THEN
        PERFORM _make_waiting(j, v_before, 'replace');
    ELSE
        PERFORM _put(j);
    END IF;
    RETURN _absorb(a.id, 'replaced', j.id);
END $$;

-- New jobs from arrays of their columns, as `enqueue` is given them.
CREATE OR REPLACE FUNCTION _asked(
    p_ids uuid[], p_tasks text[], p_queues text[], p_lanes text[], p_priorities smallint[], p_keys text[], p_modes smallint[],
    p_wins bigint[], p_delays bigint[], p_run_at bigint[], p_expires bigint[], p_payloads bytea[], p_headers bytea[],
    p_tags bytea[], p_max_attempts integer[], p_revisions bigint[], p_flows text[], p_edge_of integer[],
    p_edge_parents uuid[], p_edge_on smallint[], p_dead bytea[] DEFAULT NULL
) RETURNS asked[] LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(array_agg(ROW(o, id, coalesce(task, p_tasks[1]), coalesce(queue, p_queues[1]), coalesce(lane, p_lanes[1]),
        coalesce(priority, p_priorities[1]), key, coalesce(mode, MODE_IGNORE), coalesce(win, 0), coalesce(delay, p_delays[1]),
        CASE cardinality(p_run_at) WHEN 1 THEN p_run_at[1] ELSE run_at END, CASE cardinality(p_expires) WHEN 1 THEN p_expires[1] ELSE expires END,
        payload, CASE cardinality(p_headers) WHEN 1 THEN p_headers[1] ELSE headers END, CASE cardinality(p_tags) WHEN 1 THEN p_tags[1] ELSE tags END,
        coalesce(max_attempts, p_max_attempts[1]), coalesce(revision, p_revisions[1]), coalesce(flow, p_flows[1]),
        e.ids, e.ons, NULL, NULL, dead)::asked ORDER BY o), '{}')
    FROM unnest(p_ids, p_tasks, p_queues, p_lanes, p_priorities, p_keys, p_modes, p_wins, p_delays, p_run_at, p_expires,
        p_payloads, p_headers, p_tags, p_max_attempts, p_revisions, p_flows, p_dead) WITH ORDINALITY
        AS u (id, task, queue, lane, priority, key, mode, win, delay, run_at, expires, payload, headers, tags, max_attempts,
              revision, flow, dead, o)
    LEFT JOIN (
        SELECT child, array_agg(parent ORDER BY i) AS ids, array_agg(failure ORDER BY i) AS ons
        FROM unnest(p_edge_of, p_edge_parents, p_edge_on) WITH ORDINALITY AS v (child, parent, failure, i) GROUP BY child
    ) e ON e.child = u.o
$$;
