-- Claim: who gets what next.
--
-- Two bodies. `_take_many` takes the first jobs of a queue all at once, where nothing but their order, their lanes and numbers of leases decide.
-- `_take_one` takes one job, whatever decides: rates, weighted bands, a sequence, suspects, jobs that have expired.
--
-- Keys touched: session (its ask), ready, lease, job, delta, event_in; with lanes and limits queue, lane, ring, seat. Cost: O(queues asked +
-- jobs handed out · log n), at most 100 due and expired jobs looked after.

-- in: an ask. out: the head (no job), then the leases.
CREATE OR REPLACE FUNCTION claim(
    p_now bigint, p_queues text[], p_slots integer, p_size integer, p_session text, p_seq bigint, p_visibility bigint,
    p_suspects boolean, p_max_bytes bigint, p_draw bigint, p_soon integer
) RETURNS SETOF claimed LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    a ask := ROW(p_queues, p_slots, p_size, p_session, p_seq, p_visibility, p_suspects, p_max_bytes, p_draw, p_soon)::ask;
    v_alone boolean := _needs_alone(a);
    x record;
BEGIN
    LOOP   -- at most twice
        BEGIN
            IF v_alone THEN
                PERFORM _begin_alone(p_now);
            ELSE
                PERFORM _begin_beside(p_now);
                PERFORM _lock_lanes(p_queues);
                IF _needs_alone(a) THEN
                    PERFORM _must_be_alone();
                END IF;
            END IF;
            x := _answer(a, v_alone);
            EXIT;
        EXCEPTION WHEN SQLSTATE 'WL001' THEN
            IF v_alone THEN
                RAISE;
            END IF;
            v_alone := true;
        END;
    END LOOP;
    RETURN NEXT x.head;
    RETURN QUERY SELECT * FROM _leased(x.leases);
    PERFORM _ring();
END $$;

-- Whether an ask can only be answered by a step that has the namespace to itself.
CREATE OR REPLACE FUNCTION _needs_alone(a ask) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN a.alone OR EXISTS (SELECT FROM inbox) OR EXISTS (SELECT FROM queue q WHERE q.name = ANY (a.queues) AND NOT _takes_many(q));
END $$;

-- Whether nothing but order, lanes and numbers of leases decide what a queue hands out next.
CREATE OR REPLACE FUNCTION _takes_many(q queue) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF q.laned THEN
        RETURN NOT q.sequence AND q.bands IS NULL AND q.rate_count IS NULL AND q.lane_rate_count IS NULL;
    END IF;
    RETURN q.unlimited AND NOT EXISTS (SELECT FROM lane WHERE queue = q.name);
END $$;

-- Answer an ask. p_alone: whether the step has the namespace to itself. out: the head, and the numbers of the leased jobs in order.
CREATE OR REPLACE FUNCTION _answer(a ask, p_alone boolean, OUT head claimed, OUT leases bigint[]) LANGUAGE plpgsql AS $$
DECLARE
    s session;
    v_queues text[] := array(
        SELECT q.name FROM unnest(a.queues) WITH ORDINALITY AS u (name, o) JOIN queue q ON q.name = u.name GROUP BY q.name ORDER BY min(u.o));
BEGIN
    head.asker := 'alive';
    head.more := false;
    head.suspects := 0;
    leases := '{}';
    IF a.session IS NOT NULL THEN
        SELECT * INTO s FROM session WHERE id = a.session FOR NO KEY UPDATE;
        -- One beyond the next: this database has forgotten an answer, and with it whom its leases belong to.
        IF NOT FOUND OR s.ended_at IS NOT NULL OR a.seq < s.seq OR a.seq > s.seq + 1 THEN
            head.asker := CASE WHEN s.ended_at IS NULL AND a.seq < s.seq THEN 'outdated' ELSE 'lost' END;
            RETURN;
        END IF;
    END IF;
    IF a.seq = s.seq THEN
        leases := array(SELECT n FROM lease WHERE session = a.session AND ask = a.seq ORDER BY i);
    ELSE
        SELECT t.leases, t.more INTO leases, head.more FROM _hand_out(a, v_queues, p_alone) t;
        UPDATE session SET seq = a.seq WHERE id = a.session;
    END IF;
    head.next_in := CASE WHEN head.more THEN 0 ELSE _next_in(a, v_queues, a.seq IS DISTINCT FROM s.seq) END;
    head.suspects := (
        SELECT count(*) FROM (
            SELECT FROM unnest(v_queues) u (name) CROSS JOIN LATERAL (
                SELECT FROM ready WHERE queue = u.name AND suspect ORDER BY seq LIMIT 100) r LIMIT 100) c);
END $$;

-- Hand out jobs of these queues. out: their numbers, in order; whether a bound of the ask stopped it with jobs left.
CREATE OR REPLACE FUNCTION _hand_out(a ask, p_queues text[], p_alone boolean, OUT leases bigint[], OUT more boolean) LANGUAGE plpgsql AS $$
DECLARE
    q queue;
    x record;
    v_at bigint := _at();
    v_left integer := 100 - _promote_due(100, p_queues);   -- expired jobs that may still be looked after
    v_bytes bigint := 0;
    v_name text;
    v_turns turns;
BEGIN
    leases := '{}';
    more := true;
    FOREACH v_name IN ARRAY p_queues LOOP
        PERFORM _refresh_due(v_name, v_at < (SELECT mark FROM meta)) FROM queue WHERE name = v_name AND laned;
        v_turns := NULL;
        LOOP
            SELECT * INTO q FROM queue WHERE name = v_name;
            EXIT WHEN q.paused;
            IF v_turns IS NULL AND NOT a.alone AND _takes_many(q) THEN
                SELECT * INTO x FROM _take_many(q, a, leases, v_bytes);
                leases := x.leases;
                v_bytes := x.bytes;
                IF x.stopped THEN
                    PERFORM _lease(a, leases);
                    RETURN;
                END IF;
                EXIT WHEN NOT x.odd;
                IF NOT p_alone THEN
                    PERFORM _must_be_alone();
                END IF;
            END IF;
            SELECT * INTO x FROM _take_one(q, a, leases, v_bytes, v_left, v_turns);
            leases := x.leases;
            v_bytes := x.bytes;
            v_left := x.remaining;
            v_turns := x.turns;
            IF x.stopped THEN
                PERFORM _lease(a, leases);
                RETURN;
            END IF;
            EXIT WHEN x.empty;
        END LOOP;
    END LOOP;
    PERFORM _lease(a, leases);
    more := v_left = 0 AND EXISTS (
        SELECT FROM unnest(p_queues) u (name) CROSS JOIN LATERAL (
            SELECT FROM job WHERE queue = u.name AND waits = STATE_SCHEDULED AND due_at <= v_at ORDER BY due_at LIMIT 1) d);
END $$;

-- Take the first jobs of a queue out of their places, and file their leases.
--
-- Lanes go by stride (`windlass.core.order`): each claim takes from the lane whose `due` is lowest, and adds a stride to it. So the times of a
-- lane's next claims are due, due + stride, due + 2 · stride …, whatever the others do, and the next claims of a ring are the lowest of all its
-- lanes' times: a sort instead of a loop. The jobs of a turn go by the time of its first. A queue without lanes is one lane without a seat.
--
-- in: a queue that `_takes_many`, the ask, what was leased before and its bytes. out: the same with what this queue hands out; stopped: a bound
-- of the ask stopped it; odd: `_take_one` has to go on, where somebody's turn begins.
CREATE OR REPLACE FUNCTION _take_many(
    q queue, a ask, p_leases bigint[], p_bytes bigint, OUT leases bigint[], OUT stopped boolean, OUT odd boolean, OUT bytes bigint
) LANGUAGE plpgsql AS $$
DECLARE
    r record;
    v_at bigint := _at();
    v_turn integer := _turn_of(a.slots, a.soon);
    v_limited boolean := q.concurrency IS NOT NULL OR q.lane_concurrency IS NOT NULL;
    v_open bigint;     -- slots that the queue has left
    v_ring bigint;
    v_want integer;    -- one more than may be taken, to see what stops the claim
    v_count integer;   -- jobs that are leased already
    v_take integer;
BEGIN
    leases := p_leases;
    bytes := p_bytes;
    stopped := false;
    odd := false;
    LOOP
        v_count := cardinality(leases);
        IF q.concurrency IS NOT NULL THEN
            v_open := q.concurrency - (SELECT count(*) FROM (SELECT FROM lease WHERE queue = q.name LIMIT q.concurrency) c);
            EXIT WHEN v_open <= 0;
        END IF;
        IF q.laned THEN
            v_ring := CASE WHEN q.one_ring THEN 0 ELSE (
                SELECT band FROM seat WHERE queue = q.name AND due IS NOT NULL ORDER BY band LIMIT 1) END;
            EXIT WHEN v_ring IS NULL;
        END IF;
        v_want := greatest(v_turn + 1, CASE WHEN v_limited THEN a.soon ELSE a.size END - v_count + 1);
        WITH lanes AS (   -- those that are next; `each`: jobs of one to look at in this round, whole turns; `room`: slots that it has left
            SELECT NULL::tid AS seat, '' AS lane, 0::bigint AS clock, 0::bigint AS due, 1::bigint AS stride, false AS rated,
                false AS limited, v_want AS each, v_want::bigint AS room
            WHERE NOT q.laned
            UNION ALL
            SELECT s.seat, s.lane, s.clock, s.due, _stride(coalesce(o.weight, 1)),
                coalesce(o.level IS NOT NULL OR (o.has_rate AND o.rate_count IS NOT NULL), false), m.most IS NOT NULL,
                ((v_want - 1) / (s.lanes * v_turn) + 1)::integer * v_turn,
                CASE WHEN m.most IS NULL THEN v_want ELSE m.most - (
                    SELECT count(*) FROM (SELECT FROM lease WHERE queue = q.name AND lane = s.lane LIMIT m.most) c) END
            FROM (
                SELECT w.*, count(*) OVER () AS lanes FROM (
                    SELECT ctid AS seat, lane, clock, due FROM seat
                    WHERE q.laned AND queue = q.name AND band = v_ring AND due IS NOT NULL ORDER BY due, lane LIMIT v_want) w) s
            LEFT JOIN LATERAL (SELECT * FROM lane WHERE queue = q.name AND name = s.lane OFFSET 0) o ON true
            CROSS JOIN LATERAL (SELECT CASE WHEN o.has_concurrency THEN o.concurrency ELSE q.lane_concurrency END AS most OFFSET 0) m
        ), heads AS (   -- their first jobs; `horizon`: when the first job comes that this round does not look at
            SELECT l.*, j.*, l.due + (j.nth - j.nth % v_turn) * l.stride AS at,
                min(CASE WHEN j.found > l.each THEN l.due + l.each * l.stride END) OVER () AS horizon
            FROM lanes l CROSS JOIN LATERAL (
                SELECT f.*, row_number() OVER () - 1 AS nth, count(*) OVER () AS found FROM (
                    SELECT ctid AS place, n, task, size, last, expires_at FROM ready
                    WHERE queue = q.name AND lane = l.lane AND NOT suspect
                      AND band <= CASE WHEN q.laned AND NOT q.one_ring THEN v_ring ELSE LAST_BAND END
                    ORDER BY band, seq LIMIT greatest(0, least(l.room, l.each + 1)) FOR UPDATE SKIP LOCKED) f) j
        ), judged AS (   -- in order, each with what would stop the claim there
            SELECT h.*, h.nth % v_turn = 0 AS begins, h.count > v_open AS closed, h.rated OR coalesce(h.expires_at <= v_at, false) AS is_odd,
                v_count + h.count > CASE
                    WHEN h.last OR NOT EXISTS (SELECT FROM timed t WHERE t.task = h.task) THEN a.slots
                    WHEN q.concurrency IS NOT NULL OR h.limited THEN a.soon ELSE a.size END
                OR (v_count + h.count > 1 AND bytes + h.sum > a.max_bytes) AS stops
            FROM (
                SELECT w.*, row_number() OVER () AS count, sum(w.size) OVER (ROWS UNBOUNDED PRECEDING) AS sum FROM (
                    SELECT * FROM heads WHERE nth < each AND at < coalesce(horizon, LAST_BAND) ORDER BY at, lane, nth LIMIT v_want) w) h
        )
        SELECT array_agg(d.n) AS jobs, array_agg(d.place) AS places, array_agg(d.lane) AS lanes, array_agg(d.task) AS tasks,
            array_agg(d.sum) AS sums, array_agg(d.begins) AS begins, array_agg(d.seat) AS seats, array_agg(d.clock) AS clocks,
            array_agg(d.due) AS dues, array_agg(d.stride) AS strides, array_agg(d.room) AS rooms, array_agg(d.found) AS found,
            min(d.count) FILTER (WHERE d.is_odd) AS odd, min(d.count) FILTER (WHERE d.stops) AS stop,
            min(d.count) FILTER (WHERE d.closed) AS close
        INTO r FROM judged d;
        EXIT WHEN r.jobs IS NULL;
        v_take := least(cardinality(r.jobs), r.odd - 1, r.stop - 1, r.close - 1);
        odd := r.odd = v_take + 1 AND r.close IS DISTINCT FROM r.odd;
        stopped := NOT coalesce(odd, false) AND r.stop = v_take + 1 AND r.close IS DISTINCT FROM r.stop;
        odd := coalesce(odd, false);
        stopped := coalesce(stopped, false);
        IF odd OR (v_take = v_want AND NOT stopped) THEN
            -- What comes next is for `_take_one`, or for the next round: together with the turn that it belongs to.
            WHILE v_take > 0 AND NOT coalesce(r.begins[v_take + 1], false) LOOP
                v_take := v_take - 1;
            END LOOP;
        END IF;
        IF v_take > 0 THEN
            leases := leases || r.jobs[: v_take];
            bytes := bytes + r.sums[v_take];
            PERFORM _leave_places(q.name, r.places[: v_take], r.tasks[: v_take]);
            PERFORM _file_leases(a, q.name, r.jobs[: v_take], r.lanes[: v_take]);
            IF q.laned THEN
                PERFORM _advance(q.name, v_ring, r.lanes[: v_take], r.seats[: v_take], r.clocks[: v_take], r.dues[: v_take],
                    r.strides[: v_take], r.rooms[: v_take], r.found[: v_take]);
            END IF;
        END IF;
        EXIT WHEN stopped OR odd OR NOT q.laned;
    END LOOP;
END $$;

-- Take jobs out of their places, and count them as running.
CREATE OR REPLACE FUNCTION _leave_places(p_queue text, p_places tid[], p_tasks text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM ready WHERE ctid = ANY (p_places);
    INSERT INTO delta (queue, task, state, n, bytes)
    SELECT p_queue, t.task, s.state, s.by * t.n, 0
    FROM (SELECT u.task, count(*) AS n FROM unnest(p_tasks) AS u (task) GROUP BY u.task) t,
        (VALUES (STATE_READY, -1), (STATE_RUNNING, 1)) s (state, by);
END $$;

-- File the leases of jobs of a queue, in this order.
CREATE OR REPLACE FUNCTION _file_leases(a ask, p_queue text, p_jobs bigint[], p_lanes text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO lease (session, n, i, ask, queue, lane)
    SELECT coalesce(a.session, ''), u.n, nextval('number'), a.seq, p_queue, u.lane FROM unnest(p_jobs, p_lanes) AS u (n, lane);
END $$;

-- Move the clocks of lanes that jobs were taken from, and let those leave that have nothing more to hand out. In, job by job: its lane; the lane's
-- seat, its clock and due before; its stride; how many slots it had left, and how many jobs were found in it.
CREATE OR REPLACE FUNCTION _advance(
    p_queue text, p_ring bigint, p_lanes text[], p_seats tid[], p_clocks bigint[], p_dues bigint[], p_strides bigint[], p_rooms bigint[],
    p_found bigint[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    x record;
    v_left bigint[] := ARRAY[p_ring];
BEGIN
    WITH taken AS (
        SELECT u.lane, u.seat, u.due, u.stride, count(*) AS n, count(*) >= u.room AS full, count(*) >= least(u.room, u.found) AS leaves,
            CASE count(*) WHEN 1 THEN u.clock ELSE u.due + (count(*) - 2) * u.stride END AS last
        FROM unnest(p_lanes, p_seats, p_clocks, p_dues, p_strides, p_rooms, p_found) AS u (lane, seat, clock, due, stride, room, found)
        GROUP BY u.lane, u.seat, u.clock, u.due, u.stride, u.room, u.found
    ), seated AS (
        UPDATE seat s SET clock = t.due + (t.n - 1) * t.stride, due = CASE WHEN NOT t.leaves THEN t.due + t.n * t.stride END
        FROM taken t WHERE s.ctid = t.seat
        RETURNING t.lane, t.full, t.leaves, t.last
    )
    SELECT max(t.last) AS time, bool_or(t.leaves) AS left, array_agg(t.lane) FILTER (WHERE t.full) AS full INTO x FROM seated t;
    UPDATE ring SET time = x.time WHERE queue = p_queue AND band = p_ring AND time < x.time;
    IF NOT x.left THEN
        RETURN;
    END IF;
    IF x.full IS NOT NULL THEN   -- all of their slots are taken: they hand out nothing in any band
        WITH gone AS (UPDATE seat SET due = NULL WHERE queue = p_queue AND lane = ANY (x.full) AND due IS NOT NULL RETURNING band)
        SELECT v_left || array_agg(DISTINCT g.band) INTO v_left FROM gone g;
    END IF;
    UPDATE ring r SET empty_since = _at()
    WHERE r.queue = p_queue AND r.band = ANY (v_left)
      AND NOT EXISTS (SELECT FROM seat s WHERE s.queue = p_queue AND s.band = r.band AND s.due IS NOT NULL);
END $$;

-- Take the next job of a queue, whatever decides. in: what was leased before, its bytes, how many expired jobs may still be looked after, and whose
-- turn it is. out: the same; stopped: a bound of the ask stopped it; empty: the queue hands out nothing more.
CREATE OR REPLACE FUNCTION _take_one(
    q queue, a ask, p_leases bigint[], p_bytes bigint, p_left integer, p_turns turns,
    OUT leases bigint[], OUT bytes bigint, OUT remaining integer, OUT turns turns, OUT stopped boolean, OUT empty boolean
) LANGUAGE plpgsql AS $$
DECLARE
    l lane;
    j job;
    v_at bigint := _at();
    v_room integer;
    v_ring bigint;
    v_i integer;     -- where the ring stands among those of which somebody's turn is known
    v_n bigint;
BEGIN
    leases := p_leases;
    bytes := p_bytes;
    remaining := p_left;
    turns := p_turns;
    stopped := false;
    v_n := CASE WHEN a.alone THEN _next_suspect(q, v_at)
        ELSE _next_job(q, _draw(a.draw, cardinality(leases)), v_at, turns) END;
    empty := v_n IS NULL;
    IF empty THEN
        RETURN;
    END IF;
    SELECT * INTO j FROM job WHERE n = v_n;
    l := _lane(q, j.lane);
    IF q.laned AND l.rate_count IS NOT NULL AND _lane_token_in(l, v_at) > 0 THEN
        -- It entered its ring by a token of a later time: the clock ran ahead, and was set back before a sweep saw it.
        PERFORM _refresh(q.name, j.lane);
        RETURN;
    END IF;
    IF j.expires_at <= v_at AND NOT j.started THEN
        PERFORM _expire(j);
        turns := NULL;
        remaining := remaining - 1;
        stopped := remaining < 0;
        RETURN;
    END IF;
    v_room := CASE
        WHEN a.alone THEN least(1, a.slots)
        WHEN j.attempt + 1 >= j.max_attempts OR NOT EXISTS (SELECT FROM timed WHERE task = j.task) THEN a.slots
        WHEN q.concurrency IS NOT NULL OR q.rate_count IS NOT NULL OR l.concurrency IS NOT NULL OR l.rate_count IS NOT NULL THEN a.soon
        ELSE a.size
    END;
    bytes := bytes + octet_length(j.payload);
    stopped := cardinality(leases) >= v_room OR (cardinality(leases) > 0 AND bytes > a.max_bytes);
    IF stopped THEN
        RETURN;
    END IF;
    v_ring := CASE WHEN q.one_ring THEN 0 ELSE j.band END;
    v_i := coalesce(array_position(turns.rings, v_ring), coalesce(cardinality(turns.rings), 0) + 1);
    turns.taken[v_i] := CASE WHEN turns.lanes[v_i] = j.lane THEN turns.taken[v_i] + 1 ELSE 1 END;
    turns.lanes[v_i] := CASE WHEN turns.taken[v_i] < _turn_of(a.slots, a.soon) THEN j.lane END;
    turns.rings[v_i] := v_ring;
    PERFORM _occupy(q, l, j);
    PERFORM _leave_places(q.name, array(
        SELECT ctid FROM ready WHERE queue = j.queue AND lane = j.lane AND band = j.band AND seq = j.seq AND n = j.n), ARRAY[j.task]);
    PERFORM _file_leases(a, q.name, ARRAY[v_n], ARRAY[j.lane]);
    PERFORM _refresh(q.name, j.lane);
    leases := leases || v_n;
END $$;

-- Have the rows of jobs say that they are leased, and log it where that is asked for.
CREATE OR REPLACE FUNCTION _lease(a ask, p_jobs bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_at bigint := _at();
BEGIN
    UPDATE job SET state = STATE_RUNNING, reason = NULL, fence = _new_fence(fence, v_at), attempt = attempt + 1, claimed_at = v_at,
        session = a.session, deadline = v_at + a.visibility, timer = v_at + a.visibility
    WHERE n = ANY (p_jobs);
    IF EXISTS (SELECT FROM queue WHERE name = ANY (a.queues) AND emit = EMIT_ALL) THEN
        INSERT INTO event_in (at, job, task, queue, lane, move, before, after, attempt, fence, waited)
        SELECT v_at, j.id, j.task, j.queue, j.lane, 'claim', STATE_READY, STATE_RUNNING, j.attempt, j.fence, greatest(0, v_at - j.due_at)
        FROM unnest(p_jobs) WITH ORDINALITY AS u (n, o) CROSS JOIN LATERAL (SELECT * FROM job WHERE n = u.n OFFSET 0) j
        JOIN queue q ON q.name = j.queue AND q.emit = EMIT_ALL ORDER BY u.o;
    END IF;
END $$;

-- Leases as the asker is told of them, in this order.
CREATE OR REPLACE FUNCTION _leased(p_jobs bigint[]) RETURNS SETOF claimed LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_at bigint := _at();
BEGIN
    RETURN QUERY
        SELECT NULL::text, NULL::boolean, NULL::bigint, NULL::integer, NULL::text[], NULL::text[], NULL::smallint[], NULL::text[],
            j.id, j.fence, j.task, j.queue, j.lane, j.priority, j.attempt, j.max_attempts, j.crashes, j.revision, j.payload, j.headers,
            j.tags, j.flow, j.after_ids,
            CASE WHEN j.has_memos THEN array(SELECT m.name FROM memo m WHERE m.n = j.n ORDER BY m.name)::text[] END,
            CASE WHEN j.has_memos THEN array(SELECT m.value FROM memo m WHERE m.n = j.n ORDER BY m.name) END,
            greatest(0, j.claimed_at - j.due_at), CASE WHEN NOT j.started THEN j.expires_at - v_at END, j.deadline - v_at
        FROM unnest(p_jobs) WITH ORDINALITY AS u (n, o) CROSS JOIN LATERAL (SELECT * FROM job WHERE n = u.n OFFSET 0) j ORDER BY u.o;
END $$;

-- How long until time alone may make something claimable, for this kind of asker; NULL: nothing will. p_claimed: the step has just handed out what
-- these queues had.
CREATE OR REPLACE FUNCTION _next_in(a ask, p_queues text[], p_claimed boolean) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
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
                    SELECT due_at FROM job WHERE queue = q.name AND waits = STATE_SCHEDULED AND crashes >= SUSPECT_AFTER
                    ORDER BY seq LIMIT 1000) s));
        ELSE
            v_next := least(v_next, (
                SELECT greatest(0, due_at - v_at) FROM job WHERE queue = q.name AND waits = STATE_SCHEDULED ORDER BY due_at LIMIT 1));
        END IF;
        CONTINUE WHEN p_claimed AND NOT a.alone AND q.unlimited AND NOT q.laned;
        IF (a.alone AND _next_suspect(q, v_at) IS NOT NULL) OR (NOT a.alone AND _next_job(q, a.draw, v_at, NULL) IS NOT NULL) THEN
            RETURN 0;
        END IF;
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
        IF _next_job(q, 0, v_at, NULL) IS NOT NULL THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
END $$;
