-- Claim from lanes, many jobs in a few statements, for one that has the namespace to itself.
--
-- Lanes go by stride (`windlass.core.order`): each claim takes from the lane whose `due` is lowest, and adds a stride to it. So the
-- times of a lane's next claims are due, due + stride, due + 2 · stride …, whatever the others do, and the next claims of a ring are
-- the lowest of all its lanes' times: a sort instead of a loop. Where something else decides (weighted bands, a line, tokens, a
-- job that has expired) the loop in `07_claim.sql` goes on.
--
-- Keys touched: ready, lease, job, delta, event_in, seat, ring. Cost: a few probes per lane looked at, which are one more than jobs
-- can be handed out, and a few rows a job.

-- Whether nothing but lanes, bands in strict order and numbers of leases decide what a queue hands out next.
CREATE OR REPLACE FUNCTION _has_simple_lanes(q queue) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT q.laned AND NOT q.paused AND NOT q.sequence AND q.bands IS NULL AND q.rate_count IS NULL AND q.lane_rate_count IS NULL
$$;

-- in: an ask, how many jobs may be handed out before one under a limit, what was leased before and its bytes. out: the same with what this queue hands out; able: false if the loop has to go
-- on from here; stopped: whether a bound of the ask stopped it.
DROP FUNCTION IF EXISTS _take_laned(queue, ask, bigint[], bigint);
CREATE OR REPLACE FUNCTION _take_laned(
    q queue, a ask, p_soon integer, p_leases bigint[], p_bytes bigint, OUT leases bigint[], OUT able boolean, OUT stopped boolean, OUT bytes bigint
) LANGUAGE plpgsql AS $$
DECLARE
    r record;
    v_at bigint := _at();
    v_count integer := cardinality(p_leases);
    v_limited boolean := q.concurrency IS NOT NULL OR q.lane_concurrency IS NOT NULL;
    v_open bigint := 9223372036854775807;
    v_ring bigint := 0;
    v_want integer;
    v_take integer;
    v_alike boolean := NOT EXISTS (SELECT FROM lane WHERE queue = q.name);
BEGIN
    leases := p_leases;
    able := true;
    stopped := false;
    bytes := p_bytes;
    LOOP
        IF q.concurrency IS NOT NULL THEN
            v_open := q.concurrency - (SELECT count(*) FROM (SELECT FROM lease WHERE queue = q.name LIMIT q.concurrency) c);
        END IF;
        EXIT WHEN v_open <= 0;
        IF v_alike THEN
            SELECT t.jobs, t.stopped, t.bytes INTO r
            FROM _take_in_turn(q, a, CASE WHEN v_limited THEN p_soon ELSE a.size END, v_open, v_count, bytes) t;
            IF r.jobs IS NOT NULL THEN
                leases := leases || r.jobs;
                v_count := v_count + cardinality(r.jobs);
                stopped := r.stopped;
                bytes := r.bytes;
                EXIT WHEN stopped;
                CONTINUE;
            END IF;
        END IF;
        IF NOT q.one_ring THEN
            SELECT band INTO v_ring FROM seat WHERE queue = q.name AND due IS NOT NULL ORDER BY band LIMIT 1;
        END IF;
        EXIT WHEN v_ring IS NULL;
        -- One more than may be taken, to see what stops the claim.
        v_want := greatest(1, CASE WHEN v_limited THEN p_soon ELSE a.size END - v_count + 1);
        SELECT array_agg(c.n) AS jobs, array_agg(c.place) AS places, array_agg(c.lane) AS lanes, array_agg(c.size) AS sizes,
            array_agg(c.before) AS before, array_agg(c.seat) AS seats, array_agg(c.clock) AS clocks, array_agg(c.due) AS dues,
            array_agg(c.stride) AS strides, array_agg(c.room) AS rooms, array_agg(c.found) AS found,
            min(c.before) AS fewest, max(c.before) AS most, sum(c.size) AS size,
            bool_or(c.rated OR c.expires_at <= v_at) AS odd
        INTO r FROM (
            SELECT l.*, j.place, j.n, j.size, j.found, j.expires_at,
                CASE WHEN j.last OR NOT EXISTS (SELECT FROM timed t WHERE t.task = j.task) THEN a.slots
                    WHEN q.concurrency IS NOT NULL OR l.most IS NOT NULL THEN p_soon ELSE a.size END AS before
            FROM (
                SELECT s.*, 1048576 / coalesce(o.weight, 1) AS stride, m.most, coalesce(o.level IS NOT NULL OR (o.has_rate AND o.rate_count IS NOT NULL), false) AS rated,
                    CASE WHEN m.most IS NULL THEN v_want + 1 ELSE m.most - (
                        SELECT count(*) FROM (SELECT FROM lease WHERE queue = q.name AND lane = s.lane LIMIT m.most) c) END AS room
                FROM (
                    SELECT ctid AS seat, lane, clock, due FROM seat WHERE queue = q.name AND band = v_ring AND due IS NOT NULL
                    ORDER BY due, lane LIMIT v_want) s
                LEFT JOIN LATERAL (SELECT * FROM lane WHERE queue = q.name AND name = s.lane OFFSET 0) o ON true
                CROSS JOIN LATERAL (SELECT CASE WHEN o.has_concurrency THEN o.concurrency ELSE q.lane_concurrency END AS most OFFSET 0) m
                OFFSET 0) l
            CROSS JOIN LATERAL (
                SELECT f.*, row_number() OVER () - 1 AS later, count(*) OVER () AS found FROM (
                    SELECT ctid AS place, n, task, size, last, expires_at FROM ready
                    WHERE queue = q.name AND lane = l.lane AND band <= CASE WHEN q.one_ring THEN 9223372036854775807 ELSE v_ring END AND NOT suspect
                    ORDER BY band, seq LIMIT l.room) f) j
            ORDER BY l.due + j.later * l.stride, l.lane LIMIT v_want) c;
        EXIT WHEN r.jobs IS NULL;
        IF r.odd THEN
            able := false;
            RETURN;
        END IF;
        v_take := 0;
        IF r.fewest = r.most AND bytes + r.size <= a.max_bytes THEN
            -- Nothing but their number stops it.
            v_take := greatest(0, least(cardinality(r.jobs), v_open, r.most - v_count));
            stopped := v_take < cardinality(r.jobs) AND v_take < v_open;
            v_count := v_count + v_take;
            bytes := bytes + CASE WHEN stopped THEN 0 ELSE (SELECT sum(u.size) FROM unnest(r.sizes[: v_take]) u (size)) END;
        ELSE
            WHILE v_take < cardinality(r.jobs) AND v_take < v_open LOOP
                stopped := v_count >= r.before[v_take + 1]
                    OR (v_count > 0 AND bytes + r.sizes[v_take + 1] > a.max_bytes);
                EXIT WHEN stopped;
                v_take := v_take + 1;
                v_count := v_count + 1;
                bytes := bytes + r.sizes[v_take];
            END LOOP;
        END IF;
        IF v_take > 0 THEN
            leases := leases || r.jobs[: v_take];
            PERFORM _start_many(q, a, r.jobs[: v_take], r.places[: v_take], r.lanes[: v_take]);
            PERFORM _advance(q.name, v_ring, r.lanes[: v_take], r.seats[: v_take], r.clocks[: v_take], r.dues[: v_take], r.strides[: v_take],
                r.rooms[: v_take], r.found[: v_take]);
        END IF;
        EXIT WHEN stopped;
    END LOOP;
END $$;

-- One job from each of the first lanes, where lanes have no settings of their own, and so all have one stride: until the first of them
-- would have a second turn, each has one. No more is read of a lane than its first job, whether there is another, and its
-- leases. in: how many jobs the ask takes at the most, how many slots the queue has, how many jobs were taken before, and their bytes.
-- out: the jobs that are leased now; NULL if something else decides (or there is nothing), and `_take_laned` has to go on.
CREATE OR REPLACE FUNCTION _take_in_turn(
    q queue, a ask, p_most integer, p_open bigint, p_count integer, p_bytes bigint, OUT jobs bigint[], OUT stopped boolean, OUT bytes bigint
) LANGUAGE plpgsql AS $$
DECLARE
    r record;
    x record;
    y record;
    v_at bigint := _at();
    v_most bigint := q.lane_concurrency;
    v_bound bigint := CASE WHEN q.one_ring THEN 9223372036854775807 END;
    v_take integer;
BEGIN
    SELECT array_agg(c.n) AS jobs, array_agg(c.place) AS places, array_agg(c.lane) AS lanes, array_agg(c.seat) AS seats,
        array_agg(c.clock) AS clocks, array_agg(c.others) AS others, array_agg(c.task) AS tasks, array_agg(c.size) AS sizes, sum(c.size) AS size,
        min(c.ring) AS ring, min(c.task) AS one, max(c.task) AS other, bool_or(c.last OR c.expires_at <= v_at) AS odd
    INTO r FROM (
        SELECT s.ring, s.seat, s.lane, s.clock, j.place, j.n, j.task, j.size, j.last, j.expires_at, EXISTS (
            SELECT FROM ready o WHERE o.queue = q.name AND o.lane = s.lane AND o.band <= coalesce(v_bound, s.ring)
              AND (o.band, o.seq) > (j.band, j.seq) AND NOT o.suspect) AS others
        FROM (
            SELECT f.*, first_value(f.band) OVER w AS ring, first_value(f.due) OVER w AS first
            FROM (
                -- One more than may be taken, to see whether that stops the claim.
                SELECT ctid AS seat, band, lane, clock, due FROM seat WHERE queue = q.name AND due IS NOT NULL
                ORDER BY band, due, lane LIMIT greatest(1, p_most - p_count + 1)) f
            WINDOW w AS (ORDER BY f.band, f.due, f.lane)) s
        CROSS JOIN LATERAL (
            SELECT ctid AS place, n, task, size, last, expires_at, band, seq FROM ready
            WHERE queue = q.name AND lane = s.lane AND band <= coalesce(v_bound, s.ring) AND NOT suspect
            ORDER BY band, seq LIMIT 1) j
        WHERE s.band = s.ring AND s.due < s.first + 1048576
        ORDER BY s.band, s.due, s.lane) c;
    -- With few lanes most of them have several turns: a sort is less than a round for each.
    IF r.jobs IS NULL OR r.odd OR cardinality(r.jobs) * 4 <= p_most - p_count OR p_bytes + r.size > a.max_bytes
        OR NOT _are_timed(r.one, r.other, r.tasks) THEN
        RETURN;
    END IF;
    v_take := greatest(0, least(cardinality(r.jobs), p_open, p_most - p_count));
    IF v_most IS NOT NULL THEN
        SELECT array_agg(c.lane) FILTER (WHERE c.n + 1 >= v_most) AS full, bool_or(c.n >= v_most) AS over INTO x
        FROM (SELECT lane, count(*) AS n FROM lease WHERE queue = q.name AND lane = ANY (r.lanes[: v_take]) GROUP BY lane) c;
        IF x.over THEN
            RETURN;   -- not in a ring, as far as is known
        ELSIF v_most = 1 THEN
            x.full := r.lanes[: v_take];
        END IF;
    ELSE
        SELECT NULL::text[] AS full INTO x;
    END IF;
    jobs := r.jobs[: v_take];
    stopped := v_take < cardinality(r.jobs) AND v_take < p_open;
    bytes := p_bytes + CASE WHEN stopped THEN 0 ELSE (SELECT sum(u.size) FROM unnest(r.sizes[: v_take]) u (size)) END;
    IF v_take = 0 THEN
        RETURN;
    END IF;
    PERFORM _start_many(q, a, jobs, r.places[: v_take], r.lanes[: v_take]);
    SELECT max(u.clock) AS time, array_agg(u.seat) FILTER (WHERE u.stays) AS stay, array_agg(u.seat) FILTER (WHERE NOT u.stays) AS leave INTO y
    FROM (
        SELECT w.seat, w.clock, w.others AND (x.full IS NULL OR w.lane <> ALL (x.full)) AS stays
        FROM unnest(r.seats[: v_take], r.clocks[: v_take], r.others[: v_take], r.lanes[: v_take]) AS w (seat, clock, others, lane)) u;
    IF y.stay IS NOT NULL THEN
        UPDATE seat SET clock = due, due = due + 1048576 WHERE ctid = ANY (y.stay);
    END IF;
    UPDATE ring SET time = y.time WHERE queue = q.name AND band = r.ring AND time < y.time;
    IF y.leave IS NOT NULL THEN
        UPDATE seat SET clock = due, due = NULL WHERE ctid = ANY (y.leave);
        PERFORM _leave(q.name, r.ring, x.full);
    END IF;
END $$;

-- Move the clocks of lanes that jobs were taken from, and let those leave that have nothing more to hand out. In, job by job: its
-- lane; the lane's seat, its clock and due before; its stride; how many jobs it had room for, and how many of them were there.
CREATE OR REPLACE FUNCTION _advance(
    p_queue text, p_ring bigint, p_lanes text[], p_seats tid[], p_clocks bigint[], p_dues bigint[], p_strides bigint[], p_rooms bigint[],
    p_found bigint[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    x record;
BEGIN
    WITH moved_on AS (
        SELECT u.lane, u.seat, u.due, u.stride, count(*) AS taken, count(*) >= u.room AS full, count(*) >= least(u.room, u.found) AS leaves,
            CASE count(*) WHEN 1 THEN u.clock ELSE u.due + (count(*) - 2) * u.stride END AS last
        FROM unnest(p_lanes, p_seats, p_clocks, p_dues, p_strides, p_rooms, p_found) AS u (lane, seat, clock, due, stride, room, found)
        GROUP BY u.lane, u.seat, u.clock, u.due, u.stride, u.room, u.found
    ), seated AS (
        UPDATE seat s SET clock = m.due + (m.taken - 1) * m.stride, due = CASE WHEN NOT m.leaves THEN m.due + m.taken * m.stride END
        FROM moved_on m WHERE s.ctid = m.seat
        RETURNING m.lane, m.full, m.leaves, m.last
    )
    SELECT max(t.last) AS time, bool_or(t.leaves) AS left, array_agg(t.lane) FILTER (WHERE t.full) AS full INTO x FROM seated t;
    UPDATE ring SET time = x.time WHERE queue = p_queue AND band = p_ring AND time < x.time;
    IF NOT x.left THEN
        RETURN;
    END IF;
    PERFORM _leave(p_queue, p_ring, x.full);
END $$;

-- Lanes have left a ring. in: those all of whose slots are taken, or NULL: they hand out nothing in any band.
CREATE OR REPLACE FUNCTION _leave(p_queue text, p_ring bigint, p_full text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_left bigint[] := ARRAY[p_ring];
BEGIN
    IF p_full IS NOT NULL THEN
        WITH gone AS (UPDATE seat SET due = NULL WHERE queue = p_queue AND lane = ANY (p_full) AND due IS NOT NULL RETURNING band)
        SELECT v_left || array_agg(DISTINCT g.band) INTO v_left FROM gone g;
    END IF;
    UPDATE ring r SET empty_since = _at()
    WHERE r.queue = p_queue AND r.band = ANY (v_left)
      AND NOT EXISTS (SELECT FROM seat s WHERE s.queue = p_queue AND s.band = r.band AND s.due IS NOT NULL);
END $$;

-- Let lanes of a queue come back in which slots were freed. Nothing else about them has changed, so those that are in a ring need no
-- look.
DROP FUNCTION IF EXISTS _bring_back(text[], text[]);
CREATE OR REPLACE FUNCTION _bring_back(p_queue text, p_lanes text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _refresh(p_queue, l.lane) FROM (
        SELECT u.lane FROM unnest(p_lanes) AS u (lane)
        EXCEPT SELECT s.lane FROM (SELECT lane, due FROM seat WHERE queue = p_queue AND lane = ANY (p_lanes) OFFSET 0) s WHERE s.due IS NOT NULL) l
    WHERE EXISTS (SELECT FROM ready r WHERE r.queue = p_queue AND r.lane = l.lane AND NOT r.suspect OFFSET 0);
END $$;
