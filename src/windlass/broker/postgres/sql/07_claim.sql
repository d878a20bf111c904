-- Claim: who gets what next.
--
-- Keys touched: session (its ask), job, delta, event_in; with lanes and limits queue, lane, ring, seat. Cost:
-- O(queues asked + jobs handed out · log n), at most 100 due and expired jobs looked after.

-- Answer an ask. p_soon: how many jobs may be handed out before one under a limit; p_busy: the asker has just ended several jobs, so
-- that there mostly are others. out: the head; the numbers of the jobs that are leased, in order; and whether their rows have yet to
-- say so (`_lease_out` makes them; `_leased` shows those that do); or whether all are leased in blocks (`_leased_in_blocks` shows them).
DROP FUNCTION IF EXISTS _claim(ask);
DROP FUNCTION IF EXISTS _claim(ask, integer);
CREATE OR REPLACE FUNCTION _answer(
    a ask, p_soon integer, p_busy boolean, OUT head handed, OUT leases bigint[], OUT fresh boolean, OUT whole boolean
) LANGUAGE plpgsql AS $$
DECLARE
    v_in_blocks integer;
    s session;
    v_queues text[] := a.queues;
    v_missed boolean := false;
    v_patience text := current_setting('lock_timeout');
BEGIN
    IF cardinality(v_queues) > 1 OR NOT EXISTS (SELECT FROM queue WHERE name = v_queues[1]) THEN
        v_queues := array(
            SELECT q.name FROM queue q JOIN (
                SELECT name, min(o) AS o FROM unnest(a.queues) WITH ORDINALITY AS u (name, o) GROUP BY name) w USING (name)
            ORDER BY w.o);
    END IF;
    head.asker := 'alive';
    head.more := false;
    leases := '{}';
    fresh := false;
    whole := false;
    IF a.session IS NOT NULL THEN
        SELECT * INTO s FROM session WHERE id = a.session FOR NO KEY UPDATE;
        -- One beyond the next: this database has forgotten an answer, and with it whom its leases belong to.
        IF NOT FOUND OR s.ended_at IS NOT NULL OR a.seq < s.seq OR a.seq > s.seq + 1 THEN
            head.asker := CASE WHEN s.id IS NOT NULL AND s.ended_at IS NULL AND a.seq < s.seq THEN 'outdated' ELSE 'lost' END;
            head.suspects := 0;
            RETURN;
        END IF;
    END IF;
    IF a.seq IS DISTINCT FROM s.seq AND NOT a.has_lock AND NOT p_busy AND NOT _have_any(v_queues) THEN
        -- Most claims of an idle worker: plain queues with nothing in them, and nothing due. Somebody busy would look twice, and wade
        -- twice through what an open transaction keeps from being forgotten.
        IF a.session IS NOT NULL THEN
            UPDATE session SET seq = a.seq WHERE id = a.session;
        END IF;
        head.next_in := _next_due(v_queues);
        head.suspects := 0;
        RETURN;
    END IF;
    IF a.seq = s.seq THEN
        -- Whoever settles takes these locks the other way round: so they are waited for less long than PostgreSQL waits before it
        -- looks for deadlocks, and who has waited in vain begins anew.
        PERFORM set_config('lock_timeout', '100', true);
        PERFORM _lock_blocks(a.session);
        PERFORM set_config('lock_timeout', v_patience, true);
        PERFORM _open_leases(array(SELECT ctid FROM lease_block WHERE session = a.session AND ask = a.seq));
        leases := array(SELECT n FROM lease WHERE session = a.session AND ask = a.seq ORDER BY i);
    ELSE
        SELECT o.leases, o.more, o.fresh, o.missed, o.in_blocks INTO leases, head.more, fresh, v_missed, v_in_blocks
        FROM _hand_out(a, greatest(a.slots, p_soon), v_queues) o;
        whole := v_in_blocks > 0 AND v_in_blocks = cardinality(leases);
        IF v_in_blocks > 0 AND NOT whole THEN
            PERFORM _open_leases(array(SELECT ctid FROM lease_block WHERE session = a.session AND ask = a.seq));
            fresh := false;
        END IF;
        IF NOT fresh AND NOT whole THEN
            PERFORM _lease(a, leases);
        END IF;
        IF a.session IS NOT NULL THEN
            UPDATE session SET seq = a.seq WHERE id = a.session;
        END IF;
    END IF;
    head.next_in := CASE WHEN head.more OR v_missed THEN 0 WHEN a.has_lock OR a.seq = s.seq THEN _next_in(a, v_queues)
        ELSE _next_due(v_queues) END;
    head.suspects := (
        SELECT count(*) FROM (
            SELECT FROM unnest(v_queues) u (name) CROSS JOIN LATERAL (
                SELECT FROM ready WHERE queue = u.name AND suspect ORDER BY seq LIMIT 100) s LIMIT 100) c);
END $$;

-- For a claim or a settle of before that waited for the lock while functions were renewed: its caller begins it anew, and finds these.
DROP FUNCTION IF EXISTS _claim(ask, integer, boolean);
CREATE FUNCTION _claim(a ask, p_soon integer, p_busy boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'functions have been renewed' USING ERRCODE = 'serialization_failure';
END $$;

-- Whether there is anything in these queues that is ready or due.
CREATE OR REPLACE FUNCTION _have_any(p_queues text[]) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_at bigint := _at();
BEGIN
    RETURN EXISTS (SELECT FROM unnest(p_queues) u (name) CROSS JOIN LATERAL (SELECT FROM ready WHERE queue = u.name LIMIT 1) r)
        OR EXISTS (SELECT FROM unnest(p_queues) u (name) CROSS JOIN LATERAL (
            SELECT FROM job WHERE queue = u.name AND waits = 1 AND due_at <= v_at ORDER BY due_at LIMIT 1) d);
END $$;

-- p_soon: at least its slots. out: the numbers of jobs that are leased now; whether a bound of the ask stopped the claim; whether no row of theirs says so yet, instead
-- of some; whether there were jobs that others stood before; and how many of them are leased in blocks.
DROP FUNCTION IF EXISTS _hand_out(ask, text[]);
DROP FUNCTION IF EXISTS _hand_out(ask, integer, text[]);
CREATE OR REPLACE FUNCTION _hand_out(
    a ask, p_soon integer, p_queues text[],
    OUT leases bigint[], OUT more boolean, OUT fresh boolean, OUT missed boolean, OUT in_blocks integer
) LANGUAGE plpgsql AS $$
DECLARE
    q queue;
    l lane;
    j job;
    v_at bigint := _at();
    v_left integer := 100 - _promote_due(100, p_queues);
    v_bytes bigint := 0;
    v_name text;
    v_n bigint;
    v_room integer;
    v_count integer;
    v_able boolean;
    v_stopped boolean;
    v_missed boolean;
    v_turn integer := least(4, 1 + (p_soon - a.slots) / 32);   -- of a lane, in jobs (`turn_of` in windlass.core.order)
    v_rings bigint[];
    v_turns text[];     -- whose turn it is in each of them, if it goes on
    v_taken integer[];  -- how many jobs it had in it
    v_ring integer;     -- where a ring stands among them
BEGIN
    leases := '{}';
    more := true;
    fresh := true;
    missed := false;
    in_blocks := 0;
    FOREACH v_name IN ARRAY p_queues LOOP
        SELECT * INTO q FROM queue WHERE name = v_name;
        fresh := fresh AND q.emit < 2;
        IF NOT a.alone AND NOT q.paused AND (NOT a.has_lock OR _are_plain(ARRAY[v_name])) THEN
            SELECT t.leases, t.stopped, t.remaining, t.bytes, t.missed, t.in_blocks INTO leases, v_stopped, v_left, v_bytes, v_missed, v_count
            FROM _take_plain(q, a, leases, v_left, v_bytes) t;
            missed := missed OR v_missed;
            in_blocks := in_blocks + v_count;
            IF v_stopped THEN
                RETURN;
            END IF;
            CONTINUE;
        END IF;
        PERFORM _refresh_due(v_name, v_at < (SELECT mark FROM meta));
        IF NOT a.alone AND _has_simple_lanes(q) THEN
            SELECT t.leases, t.able, t.stopped, t.bytes INTO leases, v_able, v_stopped, v_bytes
            FROM _take_laned(q, a, p_soon, v_turn, leases, v_bytes) t;
            IF v_stopped THEN
                RETURN;
            END IF;
            CONTINUE WHEN v_able;
            IF current_setting('windlass.sharing', true) = 'lanes' THEN
                PERFORM _must_be_alone();
            END IF;
        END IF;
        v_rings := '{}';
        v_turns := '{}';
        v_taken := '{}';
        LOOP
            SELECT * INTO q FROM queue WHERE name = v_name;
            v_n := CASE WHEN a.alone THEN _next_suspect(q, v_at)
                ELSE _next_job(q, (a.draw + cardinality(leases) * 2654435769) % 4294967296, v_at, v_rings, v_turns) END;
            EXIT WHEN v_n IS NULL;
            SELECT * INTO j FROM job WHERE n = v_n;
            l := _lane(q, j.lane);
            IF q.laned AND l.rate_count IS NOT NULL AND _lane_token_in(l, v_at) > 0 THEN
                -- It entered its ring by a token of a later time: the clock ran ahead, and was set back before a sweep saw it.
                PERFORM _refresh(v_name, j.lane);
                CONTINUE;
            END IF;
            IF j.expires_at <= v_at AND NOT j.started THEN
                PERFORM _expire(j);
                v_rings := '{}';
                v_turns := '{}';
                v_taken := '{}';
                v_left := v_left - 1;
                IF v_left < 0 THEN
                    RETURN;
                END IF;
                CONTINUE;
            END IF;
            v_room := CASE
                WHEN a.alone THEN least(1, a.slots)
                WHEN j.attempt + 1 >= j.max_attempts OR NOT EXISTS (SELECT FROM timed WHERE task = j.task) THEN a.slots
                WHEN q.concurrency IS NOT NULL OR q.rate_count IS NOT NULL OR l.concurrency IS NOT NULL
                    OR l.rate_count IS NOT NULL THEN p_soon
                ELSE a.size
            END;
            v_bytes := v_bytes + octet_length(j.payload);
            IF cardinality(leases) >= v_room OR (cardinality(leases) > 0 AND v_bytes > a.max_bytes) THEN
                RETURN;
            END IF;
            v_ring := coalesce(array_position(v_rings, CASE WHEN q.one_ring THEN 0 ELSE j.band END), cardinality(v_rings) + 1);
            v_rings[v_ring] := CASE WHEN q.one_ring THEN 0 ELSE j.band END;
            v_taken[v_ring] := CASE WHEN v_turns[v_ring] = j.lane THEN v_taken[v_ring] + 1 ELSE 1 END;
            v_turns[v_ring] := CASE WHEN v_taken[v_ring] < v_turn THEN j.lane END;
            PERFORM _start(q, l, j, a);
            leases := leases || v_n;
            fresh := false;
        END LOOP;
    END LOOP;
    more := v_left = 0 AND EXISTS (
        SELECT FROM unnest(p_queues) u (name) CROSS JOIN LATERAL (
            SELECT FROM job WHERE queue = u.name AND waits = 1 AND due_at <= v_at ORDER BY due_at LIMIT 1) d);
END $$;

-- The same for a plain queue, in a few statements: the first jobs in order that nobody else is about to take. In: what
-- was leased before, how many expired jobs may still be looked after, bytes so far. Out: the same; whether a bound of
-- the ask stopped it; whether others stood before jobs that it could have had, which they may leave in a moment; and how many jobs it
-- has leased in blocks.
DROP FUNCTION IF EXISTS _take_plain(queue, ask, bigint[], integer, bigint);
CREATE OR REPLACE FUNCTION _take_plain(
    q queue, a ask, p_leases bigint[], p_left integer, p_bytes bigint,
    OUT leases bigint[], OUT stopped boolean, OUT remaining integer, OUT bytes bigint, OUT missed boolean, OUT in_blocks integer
) LANGUAGE plpgsql AS $$
DECLARE
    r record;
    x record;
    e job;
    v_at bigint := _at();
    v_count integer := cardinality(p_leases);
    v_want integer;
    v_rows integer;
    v_take bigint[];
    v_places tid[];
    v_block tid;
    v_again boolean;
    v_holds boolean := cardinality(p_leases) > 0;   -- rows that others may wait for
    v_by_blocks boolean := a.session IS NOT NULL AND a.visibility IS NULL AND v_at > 0 AND _has_past(q);
BEGIN
    in_blocks := 0;
    leases := p_leases;
    stopped := false;
    remaining := p_left;
    bytes := p_bytes;
    LOOP
        missed := false;
        v_again := false;
        -- One more than may be taken, to see whether that has expired or stops the claim.
        v_want := a.size - v_count + 1;
        v_rows := CASE WHEN q.has_blocks THEN _rows_of(q.name, v_want) ELSE v_want END;
        EXIT WHEN v_rows = 0;
        SELECT array_agg(f.place) AS places, array_agg(f.n) AS jobs, array_agg(f.task) AS tasks, min(f.task) AS one, max(f.task) AS other,
            sum(f.size) AS size, bool_or(f.last) AS last, bool_or(f.expires_at <= v_at) AS expired, bool_or(f.is_block) AS blocks,
            bool_and(f.is_block AND f.expires_at IS NULL AND f.is_drawn) AS only_blocks INTO r
        FROM (
            SELECT ctid AS place, n, task, size, last, expires_at, jobs IS NOT NULL AS is_block,
                jobs[cardinality(jobs)] - n < 1024 AS is_drawn   -- at once; earlier functions drew number by number
            FROM ready
            WHERE queue = q.name AND lane = '' AND NOT suspect ORDER BY band, seq LIMIT v_rows FOR UPDATE SKIP LOCKED) f;
        missed := q.has_blocks IS TRUE AND coalesce(cardinality(r.places), 0) < v_rows;
        IF r.places IS NULL AND missed AND NOT v_holds THEN
            -- Somebody who takes a few keeps a whole block from all others until it commits: waiting for that is less than
            -- coming again. Who holds none itself can be waited for by nobody here, so that there is no circle.
            SELECT ctid INTO v_block FROM ready
            WHERE queue = q.name AND lane = '' AND NOT suspect AND jobs IS NOT NULL ORDER BY band, seq LIMIT 1;
            IF NOT FOUND THEN
                missed := false;   -- single jobs, which whoever stands before them takes
                EXIT;
            END IF;
            PERFORM FROM ready WHERE ctid = v_block FOR UPDATE;
            CONTINUE;
        END IF;
        EXIT WHEN r.places IS NULL;
        v_holds := true;
        IF r.expired IS NOT TRUE AND bytes + r.size <= a.max_bytes
            AND (a.slots = a.size OR (NOT r.last AND _are_timed(r.one, r.other, r.tasks))) THEN
            -- Nothing but their number stops it.
            IF r.blocks THEN
                r.jobs := _jobs_in(r.places);
            END IF;
            v_take := r.jobs[: v_want - 1];
            v_places := r.places[: v_want - 1];
            stopped := cardinality(r.jobs) >= v_want;
            bytes := bytes + r.size;
            v_count := v_count + cardinality(v_take);
            IF r.blocks THEN
                v_places := '{}';
                IF v_by_blocks AND r.only_blocks THEN
                    PERFORM _leave_blocks(q.name, r.places, cardinality(v_take), a);
                    leases := leases || v_take;
                    in_blocks := in_blocks + cardinality(v_take);
                    v_take := '{}';
                ELSE
                    PERFORM _leave_blocks(q.name, r.places, cardinality(v_take), NULL);
                END IF;
            END IF;
        ELSIF r.blocks THEN
            PERFORM _open_blocks(r.places);   -- it is decided job by job
            CONTINUE;
        ELSE
            v_take := '{}';
            v_places := '{}';
            FOR x IN
                SELECT o.ctid AS place, o.n, o.size, o.last OR NOT EXISTS (SELECT FROM timed t WHERE t.task = o.task) AS slots_only,
                    coalesce(o.expires_at <= v_at, false) AS expired
                FROM ready o WHERE o.ctid = ANY (r.places) ORDER BY o.band, o.seq
            LOOP
                IF x.expired THEN
                    v_again := true;   -- its end may free others, which stand behind
                    EXIT WHEN cardinality(v_take) > 0;   -- those come first: events tell in which order it was
                    SELECT * INTO e FROM job WHERE n = x.n;
                    IF NOT a.has_lock AND (e.key IS NOT NULL OR e.has_children) THEN
                        PERFORM _must_be_alone();
                    END IF;
                    PERFORM _expire(e);
                    remaining := remaining - 1;
                    IF remaining < 0 THEN
                        stopped := true;
                        EXIT;
                    END IF;
                    CONTINUE;
                END IF;
                IF v_count >= (CASE WHEN x.slots_only THEN a.slots ELSE a.size END) OR (v_count > 0 AND bytes + x.size > a.max_bytes) THEN
                    stopped := true;
                    EXIT;
                END IF;
                bytes := bytes + x.size;
                v_count := v_count + 1;
                v_take := v_take || x.n;
                v_places := v_places || x.place;
            END LOOP;
        END IF;
        IF cardinality(v_take) > 0 THEN
            PERFORM _start_many(q, a, v_take, v_places, '{}');
            leases := leases || v_take;
        END IF;
        EXIT WHEN stopped OR (cardinality(r.places) < v_rows AND NOT v_again);
    END LOOP;
END $$;

-- Whether runs of all these tasks were timed. The first and the last of them by name: mostly there is one.
CREATE OR REPLACE FUNCTION _are_timed(p_one text, p_other text, p_tasks text[]) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF p_one = p_other THEN
        RETURN EXISTS (SELECT FROM timed WHERE task = p_one);
    END IF;
    RETURN NOT EXISTS (
        SELECT FROM (SELECT DISTINCT unnest(p_tasks) AS task) u WHERE NOT EXISTS (SELECT FROM timed t WHERE t.task = u.task));
END $$;

-- How long until time alone may make something claimable, for this kind of asker; NULL: nothing will.
CREATE OR REPLACE FUNCTION _next_in(a ask, p_queues text[]) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    q queue;
    v_at bigint := _at();
    v_next bigint;
    v_token bigint;
    v_lane_token bigint;
BEGIN
    FOR q IN SELECT * FROM queue WHERE name = ANY (p_queues) AND NOT paused LOOP
        IF a.alone THEN
            v_next := least(v_next, (
                -- By the index of suspects, which are few.
                SELECT min(greatest(0, s.due_at - v_at)) FROM (
                    SELECT due_at FROM job WHERE queue = q.name AND waits = 1 AND crashes >= 2 ORDER BY seq LIMIT 1000) s));
        ELSE
            v_next := least(v_next, (
                SELECT greatest(0, due_at - v_at) FROM job WHERE queue = q.name AND waits = 1 ORDER BY due_at LIMIT 1));
        END IF;
        IF (a.alone AND _next_suspect(q, v_at) IS NOT NULL) OR (NOT a.alone AND _next_job(q, a.draw, v_at) IS NOT NULL) THEN
            RETURN 0;
        END IF;
        CONTINUE WHEN q.unlimited AND NOT q.laned;
        CONTINUE WHEN NOT EXISTS (SELECT FROM ready WHERE queue = q.name);
        v_token := nullif(_queue_token_in(q, v_at), 0);
        v_lane_token := (
            SELECT min(_lane_token_in(_lane(q, l.name), v_at)) FROM lane l
            WHERE l.queue = q.name AND l.level IS NOT NULL AND _lane_token_in(_lane(q, l.name), v_at) > 0
              AND EXISTS (SELECT FROM ready WHERE queue = q.name AND lane = l.name OFFSET 0));
        v_next := least(v_next, v_token, v_lane_token);
    END LOOP;
    RETURN v_next;
END $$;

-- The same after a claim that has emptied plain queues: nothing but a due job can come.
CREATE OR REPLACE FUNCTION _next_due(p_queues text[]) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT min(greatest(0, d.due_at - _at()))
        FROM queue q CROSS JOIN LATERAL (
            SELECT due_at FROM job WHERE queue = q.name AND waits = 1 ORDER BY due_at LIMIT 1) d
        WHERE q.name = ANY (p_queues) AND NOT q.paused);
END $$;

-- in: an ask; p_alone: whether it needs the namespace to itself (the caller remembers which queues do); p_by_blocks: whether the caller can read
-- many leases in a row. out: the head, then the leases.
DROP FUNCTION IF EXISTS claim(bigint, boolean, text[], integer, integer, text, bigint, bigint, boolean, bigint, bigint);
DROP FUNCTION IF EXISTS claim(bigint, boolean, text[], integer, integer, text, bigint, bigint, boolean, bigint, bigint, integer);
CREATE OR REPLACE FUNCTION claim(
    p_now bigint, p_alone boolean, p_queues text[], p_slots integer, p_size integer, p_session text, p_seq bigint,
    p_visibility bigint, p_suspects boolean, p_max_bytes bigint, p_draw bigint, p_soon integer DEFAULT 0,
    p_by_blocks boolean DEFAULT false
) RETURNS SETOF handed LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_beside boolean := NOT p_alone AND NOT p_suspects;
    a ask;
    x record;
BEGIN
    IF v_beside THEN
        PERFORM _begin_beside(p_now);
        IF EXISTS (SELECT FROM inbox) OR NOT _are_plain(p_queues) THEN
            PERFORM _must_be_alone();
        END IF;
    ELSE
        PERFORM _begin_alone(p_now);
    END IF;
    a := ROW(p_queues, p_slots, p_size, p_session, p_seq, p_visibility, p_suspects, p_max_bytes, p_draw,
        NOT v_beside)::ask;
    x := _answer(a, p_soon, false);
    RETURN NEXT x.head;
    IF x.whole THEN
        RETURN QUERY SELECT * FROM _leased_in_blocks(a, x.leases, p_by_blocks);
    ELSIF x.fresh AND cardinality(x.leases) > 0 THEN
        RETURN QUERY SELECT * FROM _lease_out(a, x.leases);
    ELSIF cardinality(x.leases) > 0 THEN
        RETURN QUERY SELECT * FROM _leased(x.leases);
    END IF;
END $$;

-- Whether somebody who asks for work in these queues could be handed some. cost: a probe per queue.
CREATE OR REPLACE FUNCTION claimable(p_now bigint, p_queues text[]) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    q queue;
    v_at bigint := _seen_at(p_now);
BEGIN
    IF EXISTS (SELECT FROM inbox) THEN
        RETURN true;   -- a claim takes it in; for which queues it is, is seen then
    END IF;
    FOR q IN SELECT * FROM queue WHERE name = ANY (p_queues) LOOP
        IF _next_job(q, 0, v_at) IS NOT NULL THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
END $$;
