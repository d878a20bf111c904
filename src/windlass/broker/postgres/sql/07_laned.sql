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
BEGIN
    leases := p_leases;
    able := true;
    stopped := false;
    bytes := p_bytes;
    LOOP
        IF q.concurrency IS NOT NULL THEN
            v_open := q.concurrency - (SELECT count(*) FROM (SELECT FROM lease WHERE queue = q.name LIMIT q.concurrency) c);
        END IF;
        IF NOT q.one_ring THEN
            SELECT band INTO v_ring FROM seat WHERE queue = q.name AND due IS NOT NULL ORDER BY band LIMIT 1;
        END IF;
        EXIT WHEN v_open <= 0 OR v_ring IS NULL;
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

-- Move the clocks of lanes that jobs were taken from, and let those leave that have nothing more to hand out. In, job by job: its
-- lane; the lane's seat, its clock and due before; its stride; how many jobs it had room for, and how many of them were there.
CREATE OR REPLACE FUNCTION _advance(
    p_queue text, p_ring bigint, p_lanes text[], p_seats tid[], p_clocks bigint[], p_dues bigint[], p_strides bigint[], p_rooms bigint[],
    p_found bigint[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    x record;
    v_left bigint[];
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
    v_left := ARRAY[p_ring];
    IF x.full IS NOT NULL THEN
        -- All its slots are taken: it hands out nothing in any band.
        WITH gone AS (UPDATE seat SET due = NULL WHERE queue = p_queue AND lane = ANY (x.full) AND due IS NOT NULL RETURNING band)
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
        SELECT DISTINCT u.lane FROM unnest(p_lanes) AS u (lane)
        WHERE NOT EXISTS (SELECT FROM seat s WHERE s.queue = p_queue AND s.lane = u.lane AND s.due IS NOT NULL OFFSET 0)
          AND EXISTS (SELECT FROM ready r WHERE r.queue = p_queue AND r.lane = u.lane AND NOT r.suspect OFFSET 0)) l;
END $$;
