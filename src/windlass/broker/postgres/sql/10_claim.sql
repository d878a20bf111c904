-- Claim: which jobs are handed out next.
--
-- Where nothing but their order decides, `_take_runs` takes the first jobs of a queue, run by run; where lanes and numbers of leases do, `_take_turns`
-- takes them all at once. `_take_one` takes one job, whatever decides: rates, weighted bands, a sequence, suspects, jobs that have expired.
--
-- Keys touched: session (locked), answered, ready, lease, job, delta, event_in; with lanes and limits queue, lane, ring, seat. Cost: O(queues asked +
-- jobs handed out · log n), at most 100 due and expired jobs looked after.

-- in: an ask. out: the head (no job), then the leases.
CREATE OR REPLACE FUNCTION claim(
    p_now bigint, p_queues text[], p_slots integer, p_size integer, p_session text, p_seq bigint, p_visibility bigint,
    p_suspects boolean, p_max_bytes bigint, p_draw bigint, p_soon integer
) RETURNS SETOF claimed LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    a ask := ROW(p_queues, p_slots, p_size, p_session, p_seq, p_visibility, p_suspects, p_max_bytes, p_draw, p_soon)::ask;
    v_exclusive boolean := _needs_exclusive(a);
    x record;
BEGIN
    LOOP   -- at most twice
        BEGIN
            IF v_exclusive THEN
                PERFORM _begin_exclusive(p_now);
            ELSE
                PERFORM _begin_shared(p_now);
                PERFORM _lock_lanes(p_queues);
                IF _needs_exclusive(a) THEN
                    PERFORM _must_be_exclusive();
                END IF;
            END IF;
            x := _answer(a, v_exclusive);
            EXIT;
        EXCEPTION WHEN SQLSTATE 'WL001' THEN
            IF v_exclusive THEN
                RAISE;
            END IF;
            v_exclusive := true;
        END;
    END LOOP;
    RETURN NEXT x.head;
    RETURN QUERY SELECT * FROM _leased(x.leases);
    PERFORM _ring();
END $$;

-- Whether an ask can only be answered by a step that has the namespace to itself.
CREATE OR REPLACE FUNCTION _needs_exclusive(a ask) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN a.suspects OR EXISTS (SELECT FROM inbox) OR EXISTS (SELECT FROM queue q WHERE q.name = ANY (a.queues) AND NOT _takes_many(q));
END $$;

-- Whether nothing but order, lanes and numbers of leases decide what a queue hands out next.
CREATE OR REPLACE FUNCTION _takes_many(q queue) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF q.laned THEN
        RETURN NOT q.sequence AND q.bands IS NULL AND q.rate_count IS NULL AND q.lane_rate_count IS NULL;
    END IF;
    RETURN q.unlimited AND NOT EXISTS (SELECT FROM lane WHERE queue = q.name);
END $$;

-- Answer an ask. p_exclusive: whether the step has the namespace to itself. out: the head, and what is leased, in order.
CREATE OR REPLACE FUNCTION _answer(a ask, p_exclusive boolean, OUT head claimed, OUT leases run[]) LANGUAGE plpgsql AS $$
DECLARE
    s session;
    v_seq bigint;      -- its last ask that was answered
    v_missed boolean;
    v_queues text[] := array(
        SELECT q.name FROM unnest(a.queues) WITH ORDINALITY AS u (name, o) JOIN queue q ON q.name = u.name GROUP BY q.name ORDER BY min(u.o));
BEGIN
    head.asker := 'alive';
    head.more := false;
    head.suspects := 0;
    leases := '{}';
    IF a.session IS NOT NULL THEN
        SELECT * INTO s FROM session WHERE id = a.session FOR NO KEY UPDATE;
        v_seq := coalesce((SELECT seq FROM answered WHERE session = a.session ORDER BY seq DESC LIMIT 1), 0);
        head.asker := _rule_ask(s.id IS NOT NULL AND s.ended_at IS NULL, a.seq, v_seq);
        IF head.asker <> 'alive' THEN
            RETURN;
        END IF;
    END IF;
    IF a.seq = v_seq THEN
        leases := array(SELECT ROW(n, width)::run FROM lease WHERE session = a.session AND ask = a.seq ORDER BY i, n);
    ELSE
        SELECT t.leases, t.more, t.missed INTO leases, head.more, v_missed FROM _hand_out(a, v_queues, p_exclusive) t;
        IF a.session IS NOT NULL THEN
            INSERT INTO answered (session, seq) VALUES (a.session, a.seq);
            DELETE FROM answered WHERE session = a.session AND seq = v_seq;
        END IF;
    END IF;
    head.next_in := CASE WHEN head.more OR v_missed THEN 0 ELSE _next_in(a, v_queues, a.seq IS DISTINCT FROM v_seq) END;
    head.suspects := (
        SELECT count(*) FROM (
            SELECT FROM unnest(v_queues) u (name) CROSS JOIN LATERAL (
                SELECT FROM ready WHERE queue = u.name AND suspect ORDER BY seq LIMIT 100) r LIMIT 100) c);
END $$;

-- Hand out jobs of these queues. out: what is leased now, in order; whether a bound of the ask stopped it with jobs left; whether it passed over jobs
-- that another step may leave in a moment.
CREATE OR REPLACE FUNCTION _hand_out(a ask, p_queues text[], p_exclusive boolean, OUT leases run[], OUT more boolean, OUT missed boolean)
LANGUAGE plpgsql AS $$
DECLARE
    q queue;
    t taking := ROW('{}', 0, 0, 100 - _promote_due(100, p_queues), NULL, false, false, false, false)::taking;
    v_at bigint := _at();
    v_name text;
BEGIN
    <<queues>>
    FOREACH v_name IN ARRAY p_queues LOOP
        PERFORM _refresh_due(v_name, v_at < (SELECT mark FROM meta)) FROM queue WHERE name = v_name AND laned;
        t.turns := NULL;
        LOOP
            SELECT * INTO q FROM queue WHERE name = v_name;
            EXIT WHEN q.paused;
            IF t.turns IS NULL AND NOT a.suspects AND _takes_many(q) THEN
                t := CASE WHEN q.laned THEN _take_turns(q, a, t) ELSE _take_runs(q, a, t) END;
                EXIT queues WHEN t.stopped;
                EXIT WHEN NOT t.odd;
                IF NOT p_exclusive THEN
                    PERFORM _must_be_exclusive();
                END IF;
            END IF;
            t := _take_one(q, a, t);
            EXIT queues WHEN t.stopped;
            EXIT WHEN t.empty;
        END LOOP;
    END LOOP;
    leases := t.leases;
    missed := t.missed;
    more := t.stopped OR (t.spare = 0 AND EXISTS (
        SELECT FROM unnest(p_queues) u (name) CROSS JOIN LATERAL (
            SELECT FROM job WHERE queue = u.name AND waits = STATE_SCHEDULED AND due_at <= v_at ORDER BY due_at LIMIT 1) d));
    IF EXISTS (SELECT FROM queue WHERE name = ANY (p_queues) AND emit = EMIT_ALL) THEN
        INSERT INTO event_in (at, job, task, queue, lane, move, before, after, attempt, fence, waited)
        SELECT v_at, j.id, j.task, j.queue, j.lane, 'claim', STATE_READY, STATE_RUNNING, j.attempt + 1, _new_fence(j.fence, v_at),
            greatest(0, v_at - j.due_at)
        FROM unnest(leases) WITH ORDINALITY AS u (n, width, o)
        CROSS JOIN LATERAL (SELECT * FROM job WHERE n BETWEEN u.n AND u.n + u.width - 1 OFFSET 0) j
        JOIN queue o ON o.name = j.queue AND o.emit = EMIT_ALL ORDER BY u.o, j.n;
    END IF;
END $$;

-- Take the first runs of a queue without lanes. in: a queue that `_takes_many`, the ask, what was taken before. out: the same with what this queue
-- hands out; stopped: a bound of the ask stopped it; odd: `_take_one` has to go on.
CREATE OR REPLACE FUNCTION _take_runs(q queue, a ask, t taking) RETURNS taking LANGUAGE plpgsql AS $$
DECLARE
    r record;
    v_at bigint := _at();
    v_task text;             -- the last one that was looked up
    v_timed boolean;         -- whether a run of it was timed
    v_room integer;          -- how many jobs of it may be taken
    v_rows integer := _rows_of(q.name, a.size - t.count + 1);   -- one job more than may be taken, to see what stops the claim
    v_found integer := 0;
    v_split bigint;
    v_expires boolean := false;
    v_gone tid[] := '{}';
    v_runs run[] := '{}';
    v_tasks text[] := '{}';
    v_bands bigint[] := '{}';   -- those without a floor
BEGIN
    t.stopped := false;
    t.odd := false;
    FOR r IN
        SELECT o.*, o.band <> f.band AS is_new FROM _stretches(q.name) f CROSS JOIN LATERAL (   -- as `_front`, with locks
            SELECT ctid AS place, band, n, width, task, size, last, expires_at FROM ready
            WHERE queue = q.name AND lane = '' AND NOT suspect AND (band, seq) >= (f.band, f.seq) AND band < f.until
            ORDER BY band, seq LIMIT v_rows FOR UPDATE SKIP LOCKED) o
        LIMIT v_rows
    LOOP
        v_found := v_found + 1;
        t.odd := coalesce(r.expires_at <= v_at, false);
        EXIT WHEN t.odd;
        IF r.task IS DISTINCT FROM v_task THEN
            v_task := r.task;
            v_timed := EXISTS (SELECT FROM timed WHERE task = v_task);
        END IF;
        v_room := _room_for(false, a.slots, a.soon, a.size, r.last, v_timed, false) - t.count;
        t.stopped := v_room <= 0 OR (t.bytes + r.size > a.max_bytes AND t.count > 0 AND r.width = 1);
        EXIT WHEN t.stopped;
        IF t.bytes + r.size > a.max_bytes AND r.width > 1 THEN
            v_split := r.n;
            EXIT;
        ELSIF r.width > v_room THEN
            UPDATE ready SET n = n + v_room, seq = seq + v_room, width = width - v_room,
                size = size - (SELECT sum(j.size) FROM job j WHERE j.n BETWEEN r.n AND r.n + v_room - 1)
            WHERE ctid = r.place;
            r.width := v_room;
            t.stopped := true;
        ELSE
            v_gone := v_gone || r.place;
        END IF;
        t.count := t.count + r.width;
        t.bytes := t.bytes + r.size;
        v_runs := v_runs || ROW(r.n, r.width)::run;
        v_tasks := v_tasks || r.task;
        v_expires := v_expires OR r.expires_at IS NOT NULL;
        IF r.is_new AND r.band <> ALL (v_bands) THEN
            v_bands := v_bands || r.band;
        END IF;
        EXIT WHEN t.stopped;
    END LOOP;
    IF cardinality(v_runs) > 0 THEN
        DELETE FROM ready WHERE ctid = ANY (v_gone);
        IF cardinality(v_bands) > 0 THEN
            INSERT INTO floor (queue, band, seq) SELECT q.name, u, 0 FROM unnest(v_bands) u ON CONFLICT DO NOTHING;
        END IF;
        PERFORM _file_leases(a, q.name, v_runs, NULL, v_tasks, v_expires);
        t.leases := t.leases || v_runs;
    END IF;
    IF v_split IS NOT NULL THEN
        PERFORM _split_runs(q.name, v_split);   -- how much of it fits is decided job by job
        RETURN _take_runs(q, a, t);
    END IF;
    -- Another step has locked a run, of which it may leave some.
    t.missed := t.missed OR (NOT t.stopped AND NOT t.odd AND v_found < v_rows AND EXISTS (
        SELECT FROM _front(q.name, a.size + 1) o WHERE o.width > 1));
    RETURN t;
END $$;

-- Take the first jobs of a queue with lanes, all at once.
--
-- Lanes go by stride (`windlass.core.order`): each claim takes from the lane whose `due` is lowest, and adds a stride to it. So the times of a
-- lane's next claims are due, due + stride, due + 2 · stride …, whatever the others do, and the next claims of a ring are the lowest of all its
-- lanes' times: a sort instead of a loop. The jobs of a turn go by the time of its first. In, out: as `_take_runs`;
-- odd: `_take_one` has to go on, where a turn begins.
CREATE OR REPLACE FUNCTION _take_turns(q queue, a ask, t taking) RETURNS taking LANGUAGE plpgsql AS $$
DECLARE
    r record;
    v_at bigint := _at();
    v_turn integer := _turn_of(a.slots, a.soon);
    v_limited boolean := q.concurrency IS NOT NULL OR q.lane_concurrency IS NOT NULL;
    v_open bigint;     -- leases that the queue may have yet
    v_ring bigint;
    v_want integer;    -- one more than may be taken, to see what stops the claim
    v_take integer;
BEGIN
    t.stopped := false;
    t.odd := false;
    LOOP
        v_open := _leases_left(q);
        EXIT WHEN v_open <= 0;
        v_ring := CASE WHEN q.one_ring THEN 0 ELSE (
            SELECT band FROM seat WHERE queue = q.name AND due IS NOT NULL ORDER BY band LIMIT 1) END;
        EXIT WHEN v_ring IS NULL;
        v_want := greatest(v_turn + 1, CASE WHEN v_limited THEN a.soon ELSE a.size END - t.count + 1);
        WITH lanes AS (   -- those that are next; `each`: jobs of one to look at in this round, whole turns; `room`: leases that it may have yet
            SELECT s.*, _stride(coalesce(o.weight, 1)) AS stride, m.most IS NOT NULL AS limited,
                coalesce(o.level IS NOT NULL OR (o.has_rate AND o.rate_count IS NOT NULL), false) AS rated,
                ((v_want - 1) / (s.lanes * v_turn) + 1)::integer * v_turn AS each,
                CASE WHEN m.most IS NULL THEN v_want ELSE m.most - (
                    SELECT coalesce(sum(c.remaining), 0)
                    FROM (SELECT remaining FROM lease WHERE queue = q.name AND lane = s.lane LIMIT m.most) c) END AS room
            FROM (
                SELECT w.*, count(*) OVER () AS lanes FROM (
                    SELECT ctid AS seat, lane, clock, due FROM seat
                    WHERE queue = q.name AND band = v_ring AND due IS NOT NULL ORDER BY due, lane LIMIT v_want) w) s
            LEFT JOIN LATERAL (SELECT * FROM lane WHERE queue = q.name AND name = s.lane OFFSET 0) o ON true
            CROSS JOIN LATERAL (SELECT CASE WHEN o.has_concurrency THEN o.concurrency ELSE q.lane_concurrency END AS most OFFSET 0) m
        ), heads AS (   -- their first jobs; `horizon`: when the first job comes that this round does not look at
            SELECT l.*, j.*, l.due + (j.nth - j.nth % v_turn) * l.stride AS at,
                min(CASE WHEN j.found > l.each THEN l.due + l.each * l.stride END) OVER () AS horizon
            FROM lanes l CROSS JOIN LATERAL (
                SELECT f.*, row_number() OVER () - 1 AS nth, count(*) OVER () AS found FROM (
                    SELECT ctid AS place, n, task, size, last, expires_at FROM ready
                    WHERE queue = q.name AND lane = l.lane AND NOT suspect
                      AND band <= CASE WHEN q.one_ring THEN LAST_BAND ELSE v_ring END
                    ORDER BY band, seq LIMIT greatest(0, least(l.room, l.each + 1))) f) j
        ), judged AS (   -- in order, each with what would stop the claim there
            SELECT h.*, h.nth % v_turn = 0 AS begins, h.count > v_open AS closed, h.rated OR coalesce(h.expires_at <= v_at, false) AS is_odd,
                t.count + h.count > _room_for(false, a.slots, a.soon, a.size, h.last, EXISTS (SELECT FROM timed o WHERE o.task = h.task),
                    q.concurrency IS NOT NULL OR h.limited)
                OR (t.count + h.count > 1 AND t.bytes + h.sum > a.max_bytes) AS stops
            FROM (
                SELECT w.*, row_number() OVER () AS count, sum(w.size) OVER (ROWS UNBOUNDED PRECEDING) AS sum FROM (
                    SELECT * FROM heads WHERE nth < each AND at < coalesce(horizon, LAST_BAND) ORDER BY at, lane, nth LIMIT v_want) w) h
        )
        SELECT array_agg(ROW(d.n, 1)::run) AS jobs, array_agg(d.place) AS places, array_agg(d.lane) AS lanes, array_agg(d.task) AS tasks,
            array_agg(d.sum) AS sums, array_agg(d.begins) AS begins, array_agg(d.seat) AS seats, array_agg(d.clock) AS clocks,
            array_agg(d.due) AS dues, array_agg(d.stride) AS strides, array_agg(d.room) AS rooms, array_agg(d.found) AS found, bool_or(d.expires_at IS NOT NULL) AS expires,
            min(d.count) FILTER (WHERE d.is_odd) AS odd, min(d.count) FILTER (WHERE d.stops) AS stop,
            min(d.count) FILTER (WHERE d.closed) AS close
        INTO r FROM judged d;
        EXIT WHEN r.jobs IS NULL;
        v_take := least(cardinality(r.jobs), r.odd - 1, r.stop - 1, r.close - 1);
        t.odd := coalesce(r.odd = v_take + 1, false) AND r.close IS DISTINCT FROM r.odd;
        t.stopped := NOT t.odd AND coalesce(r.stop = v_take + 1, false) AND r.close IS DISTINCT FROM r.stop;
        IF t.odd OR (v_take = v_want AND NOT t.stopped) THEN
            -- What comes next is for `_take_one`, or for the next round: together with the turn that it belongs to.
            WHILE v_take > 0 AND NOT coalesce(r.begins[v_take + 1], false) LOOP
                v_take := v_take - 1;
            END LOOP;
        END IF;
        IF v_take > 0 THEN
            DELETE FROM ready WHERE ctid = ANY (r.places[: v_take]);
            PERFORM _file_leases(a, q.name, r.jobs[: v_take], r.lanes[: v_take], r.tasks[: v_take], r.expires);
            PERFORM _advance(q.name, v_ring, r.lanes[: v_take], r.seats[: v_take], r.clocks[: v_take], r.dues[: v_take],
                r.strides[: v_take], r.rooms[: v_take], r.found[: v_take]);
            t.leases := t.leases || r.jobs[: v_take];
            t.count := t.count + v_take;
            t.bytes := t.bytes + r.sums[v_take];
        END IF;
        EXIT WHEN t.stopped OR t.odd;
    END LOOP;
    RETURN t;
END $$;

-- Move the clocks of lanes that jobs were taken from, and let those leave that have nothing more to hand out. In, job by job: its lane; the lane's
-- seat, its clock and due before; its stride; how many leases it might have, and how many jobs were found in it.
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
    IF x.full IS NOT NULL THEN   -- they have all the leases that they may have, and hand out nothing in any band
        WITH gone AS (UPDATE seat SET due = NULL WHERE queue = p_queue AND lane = ANY (x.full) AND due IS NOT NULL RETURNING band)
        SELECT v_left || array_agg(DISTINCT g.band) INTO v_left FROM gone g;
    END IF;
    UPDATE ring r SET empty_since = _at()
    WHERE r.queue = p_queue AND r.band = ANY (v_left)
      AND NOT EXISTS (SELECT FROM seat s WHERE s.queue = p_queue AND s.band = r.band AND s.due IS NOT NULL);
END $$;

-- Take the next job of a queue, whatever decides. In, out: as `_take_runs`; empty: the queue hands out nothing more.
CREATE OR REPLACE FUNCTION _take_one(q queue, a ask, t taking) RETURNS taking LANGUAGE plpgsql AS $$
DECLARE
    l lane;
    j job;
    v_at bigint := _at();
    v_room integer;
    v_ring bigint;
    v_i integer;     -- where the ring stands among those of which it is known whose turn it is
    v_n bigint;
BEGIN
    t.stopped := false;
    v_n := CASE WHEN a.suspects THEN _next_suspect(q, v_at) ELSE _next_job(q, _next_draw(a.draw, t.count), v_at, t.turns) END;
    t.empty := v_n IS NULL;
    IF t.empty THEN
        RETURN t;
    END IF;
    SELECT * INTO j FROM job WHERE n = v_n;
    l := _lane(q, j.lane);
    IF q.laned AND l.rate_count IS NOT NULL AND _lane_token_in(l, v_at) > 0 THEN
        -- It entered its ring by a token of a later time: the clock ran ahead, and was set back before a sweep saw it.
        PERFORM _refresh(q.name, j.lane);
        RETURN t;
    END IF;
    IF j.expires_at <= v_at AND NOT j.started THEN
        PERFORM _expire(j);
        t.turns := NULL;
        t.spare := t.spare - 1;
        t.stopped := t.spare < 0;
        RETURN t;
    END IF;
    v_room := _room_for(a.suspects, a.slots, a.soon, a.size, j.attempt + 1 >= j.max_attempts, EXISTS (SELECT FROM timed WHERE task = j.task),
        q.concurrency IS NOT NULL OR q.rate_count IS NOT NULL OR l.concurrency IS NOT NULL OR l.rate_count IS NOT NULL);
    t.stopped := t.count >= v_room OR (t.count > 0 AND t.bytes + octet_length(j.payload) > a.max_bytes);
    IF t.stopped THEN
        RETURN t;
    END IF;
    v_ring := CASE WHEN q.one_ring THEN 0 ELSE j.band END;
    v_i := coalesce(array_position((t.turns).rings, v_ring), coalesce(cardinality((t.turns).rings), 0) + 1);
    t.turns.rings[v_i] := v_ring;
    t.turns.taken[v_i] := CASE WHEN (t.turns).lanes[v_i] = j.lane THEN (t.turns).taken[v_i] + 1 ELSE 1 END;
    t.turns.lanes[v_i] := CASE WHEN (t.turns).taken[v_i] < _turn_of(a.slots, a.soon) THEN j.lane END;
    PERFORM _occupy(q, l, j);
    PERFORM _leave_place(j, j.band, j.seq);
    PERFORM _file_leases(a, q.name, ARRAY[ROW(v_n, 1)::run], ARRAY[j.lane], ARRAY[j.task], j.expires_at IS NOT NULL);
    PERFORM _refresh(q.name, j.lane);
    t.leases := t.leases || ROW(v_n, 1)::run;
    t.count := t.count + 1;
    t.bytes := t.bytes + octet_length(j.payload);
    RETURN t;
END $$;

-- File the leases of runs that were taken out of their places, and count them. p_lanes: their lanes, or NULL if they have none; p_expires: whether
-- a job of them has an expiry, which ends with its first start.
CREATE OR REPLACE FUNCTION _file_leases(a ask, p_queue text, p_runs run[], p_lanes text[], p_tasks text[], p_expires boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_at bigint := _at();
    v_i bigint := _draw_numbers();
BEGIN
    INSERT INTO lease (session, n, width, remaining, i, ask, queue, lane, at, deadline)
    SELECT coalesce(a.session, ''), u.n, u.width, u.width, v_i + u.o, a.seq, p_queue, coalesce(p_lanes[u.o], ''), v_at, v_at + a.visibility
    FROM unnest(p_runs) WITH ORDINALITY AS u (n, width, o);
    INSERT INTO delta (queue, task, state, n, bytes)
    SELECT p_queue, c.task, s.state, s.by * c.n, 0
    FROM (SELECT p_tasks[u.o] AS task, sum(u.width) AS n FROM unnest(p_runs) WITH ORDINALITY AS u (n, width, o) GROUP BY 1) c,
        (VALUES (STATE_READY, -1), (STATE_RUNNING, 1)) s (state, by);
    IF p_expires THEN
        UPDATE job j SET timer = NULL FROM unnest(p_runs) u WHERE j.n BETWEEN u.n AND u.n + u.width - 1;
    END IF;
END $$;

-- Leases as the asker is told of them, in this order: a row a run. Its jobs came in one call, and have all but ids and payloads in common.
CREATE OR REPLACE FUNCTION _leased(p_runs run[]) RETURNS SETOF claimed LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_at bigint := _at();
BEGIN
    RETURN QUERY
        SELECT NULL::text, NULL::boolean, NULL::bigint, NULL::integer, NULL::text[], NULL::text[], NULL::smallint[], NULL::text[],
            m.ids, m.payloads, _new_fence(j.fence, l.at), j.task, j.queue, j.lane, j.priority, j.attempt + 1, j.max_attempts, j.crashes, j.revision,
            j.headers, j.tags, j.flow, j.after_ids,
            CASE WHEN j.has_memos THEN array(SELECT o.name FROM memo o WHERE o.n = j.n ORDER BY o.name)::text[] END,
            CASE WHEN j.has_memos THEN array(SELECT o.value FROM memo o WHERE o.n = j.n ORDER BY o.name) END,
            greatest(0, l.at - j.due_at), CASE WHEN NOT j.started THEN j.expires_at - v_at END, l.deadline - v_at
        FROM unnest(p_runs) WITH ORDINALITY AS u (n, width, o)
        CROSS JOIN LATERAL (
            SELECT array_agg(c.id) AS ids, array_agg(c.payload) AS payloads, min(c.n) AS n
            FROM (SELECT id, payload, n FROM job WHERE n BETWEEN u.n AND u.n + u.width - 1 AND state = STATE_READY ORDER BY n) c) m
        CROSS JOIN LATERAL (SELECT * FROM job WHERE n = m.n OFFSET 0) j
        CROSS JOIN LATERAL (SELECT at, deadline FROM lease WHERE queue = j.queue AND lane = j.lane AND n = u.n OFFSET 0) l
        ORDER BY u.o;
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
        IF a.suspects THEN
            v_next := least(v_next, (
                -- By the index of suspects, which are few.
                SELECT min(greatest(0, s.due_at - v_at)) FROM (
                    SELECT due_at FROM job WHERE queue = q.name AND waits = STATE_SCHEDULED AND crashes >= SUSPECT_AFTER
                    ORDER BY seq LIMIT 1000) s));
        ELSE
            v_next := least(v_next, (
                SELECT greatest(0, due_at - v_at) FROM job WHERE queue = q.name AND waits = STATE_SCHEDULED ORDER BY due_at LIMIT 1));
        END IF;
        CONTINUE WHEN p_claimed AND NOT a.suspects AND q.unlimited AND NOT q.laned;
        IF (a.suspects AND _next_suspect(q, v_at) IS NOT NULL) OR (NOT a.suspects AND _next_job(q, a.draw, v_at, NULL) IS NOT NULL) THEN
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

-- Whether these queues have something to hand out. cost: a probe per queue.
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
