-- Claim from lanes, many jobs in a few statements, for one that has the namespace to itself, or its lanes.
--
-- Lanes go by stride (`windlass.core.order`): each claim takes from the lane whose `due` is lowest, and adds a stride to it. So the
-- times of a lane's next claims are due, due + stride, due + 2 · stride …, whatever the others do, and the next claims of a ring are
-- the lowest of all its lanes' times: a sort instead of a loop. The jobs of a turn go by the time of its first; a turn that has fewer
-- is its lane's last, which leaves the ring with it. Where something else decides (weighted bands, a line, tokens, a
-- job that has expired) the loop in `07_claim.sql` goes on.
--
-- Keys touched: ready, lease, job, delta, event_in, seat, ring. Cost: a few probes per lane looked at, which are one more than jobs
-- can be handed out, and a few rows a job.

-- Whether nothing but lanes, bands in strict order and numbers of leases decide what a queue hands out next.
CREATE OR REPLACE FUNCTION _has_simple_lanes(q queue) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT q.laned AND NOT q.paused AND NOT q.sequence AND q.bands IS NULL AND q.rate_count IS NULL AND q.lane_rate_count IS NULL
$$;

-- in: an ask, how many jobs may be handed out before one under a limit, how many are a turn, what was leased before and its bytes. out: the
-- same with what this queue hands out; able: false if the loop has to go on from here, where somebody's turn begins; stopped: whether a
-- bound of the ask stopped it.
DROP FUNCTION IF EXISTS _take_laned(queue, ask, bigint[], bigint);
DROP FUNCTION IF EXISTS _take_laned(queue, ask, integer, bigint[], bigint);
CREATE OR REPLACE FUNCTION _take_laned(
    q queue, a ask, p_soon integer, p_turn integer, p_leases bigint[], p_bytes bigint, OUT leases bigint[], OUT able boolean, OUT stopped boolean, OUT bytes bigint
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
            FROM _take_in_turn(q, a, CASE WHEN v_limited THEN p_soon ELSE a.size END, p_turn, v_open, v_count, bytes) t;
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
        -- One more than may be taken, to see what stops the claim, and than a turn.
        v_want := greatest(p_turn + 1, CASE WHEN v_limited THEN p_soon ELSE a.size END - v_count + 1);
        SELECT array_agg(c.n) AS jobs, array_agg(c.place) AS places, array_agg(c.lane) AS lanes, array_agg(c.size) AS sizes,
            array_agg(c.before) AS before, array_agg(c.seat) AS seats, array_agg(c.clock) AS clocks, array_agg(c.due) AS dues,
            array_agg(c.stride) AS strides, array_agg(c.room) AS rooms, array_agg(c.found) AS found,
            array_agg(c.begins) AS begins, min(c.before) AS fewest, max(c.before) AS most, sum(c.size) AS size,
            bool_or(c.rated OR c.is_block OR c.expires_at <= v_at) AS odd
        INTO r FROM (
            SELECT l.*, j.place, j.n, j.size, j.is_block, j.found, j.expires_at, j.later % p_turn = 0 AS begins,
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
                    SELECT ctid AS place, n, task, size, ready.jobs IS NOT NULL AS is_block, last, expires_at FROM ready
                    WHERE queue = q.name AND lane = l.lane AND band <= CASE WHEN q.one_ring THEN 9223372036854775807 ELSE v_ring END AND NOT suspect
                    ORDER BY band, seq LIMIT l.room) f) j
            ORDER BY l.due + (j.later - j.later % p_turn) * l.stride, l.lane, j.later LIMIT v_want) c;
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
        IF NOT stopped AND v_take = v_want THEN
            -- Of lanes with other limits than the queue's there may be more, of the last turn too: that is for the next round.
            LOOP
                v_count := v_count - 1;
                bytes := bytes - r.sizes[v_take];
                v_take := v_take - 1;
                EXIT WHEN r.begins[v_take + 1];
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

-- One turn of each of the first lanes, where lanes have no settings of their own, and so all have one stride: until the first of them
-- would have a second turn, each has one. No more is read of a lane than the jobs of its turn, whether there is another, and its
-- leases. in: how many jobs the ask takes at the most, how many are a turn, how many slots the queue has, how many jobs were taken before,
-- and their bytes. out: the jobs that are leased now; NULL if something else decides (or there is nothing), and `_take_laned` has to go on.
DROP FUNCTION IF EXISTS _take_in_turn(queue, ask, integer, bigint, integer, bigint);
CREATE OR REPLACE FUNCTION _take_in_turn(
    q queue, a ask, p_most integer, p_turn integer, p_open bigint, p_count integer, p_bytes bigint,
    OUT jobs bigint[], OUT stopped boolean, OUT bytes bigint
) LANGUAGE plpgsql AS $$
DECLARE
    r record;
    v_at bigint := _at();
    v_most bigint := q.lane_concurrency;
    v_want integer := greatest(1, p_most - p_count + 1);   -- one more than may be taken, to see whether that stops the claim
    v_ring bigint;
    v_time bigint;
    v_until bigint;   -- when the first lane has its second turn
    v_bound bigint;
    v_take integer;
BEGIN
    IF q.age_step IS NULL THEN
        -- Nobody in a ring is further behind its time than a turn: what is left in the index of those that were there is not waded through.
        SELECT band, time - 4 * 1048576 INTO v_ring, v_time FROM ring WHERE queue = q.name AND empty_since IS NULL ORDER BY band LIMIT 1;
    ELSE
        SELECT band, 0 INTO v_ring, v_time FROM seat WHERE queue = q.name AND due IS NOT NULL ORDER BY band, due, lane LIMIT 1;
    END IF;
    v_until := p_turn * 1048576 + (SELECT due FROM seat WHERE queue = q.name AND band = v_ring AND due > v_time ORDER BY due, lane LIMIT 1);
    v_bound := CASE WHEN q.one_ring THEN 9223372036854775807 ELSE v_ring END;
    SELECT array_agg(c.n) AS jobs, array_agg(c.place) AS places, array_agg(c.lane) AS lanes, array_agg(c.seat) AS seats,
        array_agg(c.clock) AS clocks, array_agg(c.due) AS dues, array_agg(1048576::bigint) AS strides, array_agg(c.room) AS rooms,
        array_agg(c.found) AS found, array_agg(c.task) AS tasks, array_agg(c.size) AS sizes, sum(c.size) AS size,
        min(c.task) AS one, max(c.task) AS other, bool_or(c.last OR c.is_block OR c.expires_at <= v_at) AS odd
    INTO r FROM (
        SELECT s.*, m.room, j.*
        FROM (
            SELECT ctid AS seat, lane, clock, due FROM seat WHERE queue = q.name AND band = v_ring AND due > v_time AND due < v_until
            ORDER BY due, lane LIMIT v_want) s
        CROSS JOIN LATERAL (
            SELECT CASE WHEN v_most IS NULL THEN p_turn + 1 ELSE least(p_turn + 1, v_most - (
                SELECT count(*) FROM (SELECT FROM lease WHERE queue = q.name AND lane = s.lane LIMIT v_most) l)) END AS room OFFSET 0) m
        CROSS JOIN LATERAL (
            SELECT f.*, row_number() OVER () AS nth, count(*) OVER () AS found FROM (
                SELECT ctid AS place, n, task, size, ready.jobs IS NOT NULL AS is_block, last, expires_at FROM ready
                WHERE queue = q.name AND lane = s.lane AND band <= v_bound AND NOT suspect ORDER BY band, seq LIMIT m.room) f) j
        WHERE j.nth <= p_turn
        ORDER BY s.due, s.lane, j.nth LIMIT v_want) c;
    -- With few lanes most of them have several turns: a sort is less than a round for each.
    IF r.jobs IS NULL OR r.odd OR cardinality(r.jobs) * 4 <= p_most - p_count OR p_bytes + r.size > a.max_bytes
        OR NOT _are_timed(r.one, r.other, r.tasks) THEN
        RETURN;
    END IF;
    v_take := greatest(0, least(cardinality(r.jobs), p_open, p_most - p_count));
    jobs := r.jobs[: v_take];
    stopped := v_take < cardinality(r.jobs) AND v_take < p_open;
    bytes := p_bytes + CASE WHEN stopped THEN 0 ELSE (SELECT sum(u.size) FROM unnest(r.sizes[: v_take]) u (size)) END;
    IF v_take = 0 THEN
        RETURN;
    END IF;
    PERFORM _start_many(q, a, jobs, r.places[: v_take], r.lanes[: v_take]);
    PERFORM _advance(q.name, v_ring, r.lanes[: v_take], r.seats[: v_take], r.clocks[: v_take], r.dues[: v_take], r.strides[: v_take],
        r.rooms[: v_take], r.found[: v_take]);
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
      AND NOT EXISTS (SELECT FROM seat s WHERE s.queue = p_queue AND s.band = r.band AND s.due > r.time - 4 * 1048576);
END $$;

-- Let lanes of a queue come back in which slots were freed. Nothing else about them has changed, so those that are in a ring need no
-- look; of the others, where lanes have no settings of their own, all that have jobs in one band take their seats again at once.
DROP FUNCTION IF EXISTS _bring_back(text[], text[]);
CREATE OR REPLACE FUNCTION _bring_back(p_queue text, p_lanes text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    q queue;
    g ring;
    r record;
    v_alike boolean;
    v_band bigint;
BEGIN
    SELECT * INTO q FROM queue WHERE name = p_queue;
    v_alike := _has_simple_lanes(q) AND NOT EXISTS (SELECT FROM lane WHERE queue = p_queue);
    SELECT array_agg(c.seat) FILTER (WHERE c.plain) AS seats, array_agg(DISTINCT c.band) FILTER (WHERE c.plain) AS bands,
        array_agg(c.lane) FILTER (WHERE NOT c.plain) AS others
    INTO r FROM (
        SELECT l.lane, j.ring AS band, s.seat, v_alike AND s.seat IS NOT NULL
            AND (q.one_ring OR NOT EXISTS (
                SELECT FROM ready o WHERE o.queue = p_queue AND o.lane = l.lane AND o.band > j.band AND NOT o.suspect OFFSET 0))
            AND (q.lane_concurrency IS NULL OR q.lane_concurrency > (SELECT count(*) FROM lease WHERE queue = p_queue AND lane = l.lane)) AS plain
        FROM (SELECT DISTINCT u.lane FROM unnest(p_lanes) AS u (lane)) l
        CROSS JOIN LATERAL (
            SELECT band, CASE WHEN q.one_ring THEN 0 ELSE band END AS ring FROM ready
            WHERE queue = p_queue AND lane = l.lane AND NOT suspect ORDER BY band, seq LIMIT 1) j
        LEFT JOIN LATERAL (SELECT ctid AS seat, due FROM seat WHERE queue = p_queue AND lane = l.lane AND band = j.ring OFFSET 0) s ON true
        WHERE s.due IS NULL
        OFFSET 0) c;
    FOREACH v_band IN ARRAY coalesce(r.bands, '{}') LOOP   -- mostly one
        SELECT * INTO g FROM ring WHERE queue = p_queue AND band = v_band;
        IF g.empty_since IS NOT NULL THEN
            UPDATE ring SET empty_since = NULL WHERE queue = p_queue AND band = v_band;
        END IF;
        -- As `_refresh`: with their debt, without credit.
        UPDATE seat SET clock = greatest(clock, g.time), due = greatest(clock, g.time) + 1048576 WHERE ctid = ANY (r.seats) AND band = v_band;
    END LOOP;
    PERFORM _refresh(p_queue, u.lane) FROM unnest(r.others) AS u (lane);
END $$;
