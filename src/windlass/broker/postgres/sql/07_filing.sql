-- Filing: where a waiting job stands, and which one is next (`windlass.core.order`).
--
-- A lane is in a ring exactly while it has a job to hand out there and is not parked. `_refresh` brings that about
-- after every change; nothing else touches a ring's members. A queue that never had a lane has no rings, and none of
-- the rows of lanes and rings is ever touched. Keys touched: job, lane, ring, seat, queue (its bucket).

-- The band that a queue files a job in.
CREATE OR REPLACE FUNCTION _band_of(q queue, p_priority bigint, p_due bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT _band(p_priority, p_due, q.bands, q.age_step)
$$;

-- The same for a queue by its name.
CREATE OR REPLACE FUNCTION _band_in(p_queue text, p_priority bigint, p_due bigint) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT _band_of(q, p_priority, p_due) FROM queue q WHERE q.name = p_queue);
END $$;

-- Put a job that has just become ready in its place, and write it back.
CREATE OR REPLACE FUNCTION _file(j job, p_keeps_place boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    q queue;
BEGIN
    SELECT * INTO q FROM queue WHERE name = j.queue;
    IF NOT p_keeps_place THEN
        j.band := _band_of(q, j.priority, j.due_at);
        IF NOT q.sequence THEN
            j.seq := _draw_numbers();
        END IF;
    END IF;
    PERFORM _put(j);
    IF q.laned THEN
        PERFORM _refresh(j.queue, j.lane);
    END IF;
END $$;

-- Take a ready job out of its place while it is changed; the caller puts its state back.
CREATE OR REPLACE FUNCTION _unfile(j job) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE job SET state = STATE_UNPLACED WHERE n = j.n;
    PERFORM _leave_place(j, j.band, j.seq);
    PERFORM _refresh(j.queue, j.lane);
END $$;

-- Give a job of a queue with `sequence` its number, for good: accepted, unblocked or replayed. Does not write.
CREATE OR REPLACE FUNCTION _line_up(j job) RETURNS job LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT sequence FROM queue WHERE name = j.queue) THEN
        j.seq := _draw_numbers();
        j.line := j.seq;
    END IF;
    RETURN j;
END $$;

-- A lane with what is in force: its own settings, else the queue's for its lanes. Made up if it has no row.
CREATE OR REPLACE FUNCTION _lane(q queue, p_lane text) RETURNS lane LANGUAGE plpgsql STABLE AS $$
DECLARE
    l lane;
BEGIN
    SELECT * INTO l FROM lane WHERE queue = q.name AND name = p_lane;
    IF NOT FOUND THEN
        l.queue := q.name;
        l.name := p_lane;
        l.paused := false;
        l.weight := 1;
    END IF;
    IF q.sequence THEN
        l.concurrency := 1;
    ELSIF NOT coalesce(l.has_concurrency, false) THEN
        l.concurrency := q.lane_concurrency;
    END IF;
    IF NOT coalesce(l.has_rate, false) THEN
        l.rate_count := q.lane_rate_count;
        l.rate_per := q.lane_rate_per;
        l.rate_size := q.lane_rate_size;
    END IF;
    RETURN l;
END $$;

CREATE OR REPLACE FUNCTION _lane_token_in(l lane, p_at bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT _token_in(l.level, l.level_at, l.level_per, l.rate_count, l.rate_per, l.rate_size, p_at)
$$;

CREATE OR REPLACE FUNCTION _queue_token_in(q queue, p_at bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT _token_in(q.level, q.level_at, q.level_per, q.rate_count, q.rate_per, q.rate_size, p_at)
$$;

-- Whether one more lease of a lane fits. Leases are counted, not kept count of: right after every crash.
CREATE OR REPLACE FUNCTION _has_lease_left(p_queue text, p_lane text, p_limit bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN p_limit IS NULL OR p_limit > (
        SELECT coalesce(sum(r.remaining), 0) FROM (
            SELECT remaining FROM lease WHERE queue = p_queue AND lane = p_lane LIMIT p_limit) r);
END $$;

-- Why a lane may not hand anything out, if so.
CREATE OR REPLACE FUNCTION _parked(l lane, p_at bigint) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF l.paused THEN
        RETURN 'paused';
    ELSIF l.concurrency IS NOT NULL AND NOT _has_lease_left(l.queue, l.name, l.concurrency) THEN
        RETURN 'concurrency';
    ELSIF l.rate_count IS NOT NULL AND _lane_token_in(l, p_at) > 0 THEN
        RETURN 'rate';
    END IF;
    RETURN NULL;
END $$;

-- With `sequence`: the first job of a lane.
CREATE OR REPLACE FUNCTION _head_of_line(p_queue text, p_lane text) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT n FROM job WHERE queue = p_queue AND lane = p_lane AND line IS NOT NULL ORDER BY line LIMIT 1
$$;

-- With `sequence`: the first job of a lane, if it can be handed out to anyone.
CREATE OR REPLACE FUNCTION _head(p_queue text, p_lane text) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT n FROM job WHERE n = _head_of_line(p_queue, p_lane) AND state = STATE_READY AND crashes < SUSPECT_AFTER
$$;

-- The bands in which a lane has a ready job, first to last; one probe a band.
CREATE OR REPLACE FUNCTION _bands(p_queue text, p_lane text) RETURNS bigint[] LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_bands bigint[] := '{}';
    v_band bigint;
BEGIN
    SELECT band INTO v_band FROM ready
    WHERE queue = p_queue AND lane = p_lane AND NOT suspect ORDER BY band, seq LIMIT 1;
    WHILE v_band IS NOT NULL LOOP
        v_bands := v_bands || v_band;
        SELECT band INTO v_band FROM ready
        WHERE queue = p_queue AND lane = p_lane AND NOT suspect AND band > v_band ORDER BY band, seq LIMIT 1;
    END LOOP;
    RETURN v_bands;
END $$;

-- The rings in which a lane has something to hand out.
CREATE OR REPLACE FUNCTION _rings(q queue, p_lane text) RETURNS bigint[] LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF q.sequence THEN
        RETURN CASE WHEN _head(q.name, p_lane) IS NULL THEN '{}'::bigint[] ELSE '{0}' END;
    ELSIF q.one_ring THEN
        RETURN CASE WHEN EXISTS (
            SELECT FROM ready WHERE queue = q.name AND lane = p_lane AND NOT suspect) THEN '{0}'::bigint[]
            ELSE '{}' END;
    END IF;
    RETURN _bands(q.name, p_lane);
END $$;

-- Let a lane enter and leave rings as it now has, or has not, something to hand out there.
CREATE OR REPLACE FUNCTION _refresh(p_queue text, p_lane text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    q queue;
    l lane;
    v_at bigint := _at();
    v_wanted bigint[] := '{}';
    v_present bigint[];
    v_band bigint;
    v_time bigint;
    v_wait bigint := 0;
BEGIN
    SELECT * INTO q FROM queue WHERE name = p_queue AND laned;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    l := _lane(q, p_lane);
    IF _parked(l, v_at) IS NULL THEN
        v_wanted := _rings(q, p_lane);
    END IF;
    v_present := array(SELECT band FROM seat WHERE queue = p_queue AND lane = p_lane AND due IS NOT NULL);
    FOREACH v_band IN ARRAY v_wanted LOOP
        CONTINUE WHEN v_band = ANY (v_present);
        INSERT INTO ring (queue, band) VALUES (p_queue, v_band)
        ON CONFLICT (queue, band) DO UPDATE SET empty_since = NULL RETURNING time INTO v_time;
        -- With its debt, without credit.
        INSERT INTO seat (queue, lane, band, clock, due) VALUES (p_queue, p_lane, v_band, v_time, v_time + _stride(l.weight))
        ON CONFLICT (queue, lane, band) DO UPDATE
        SET clock = greatest(seat.clock, v_time), due = greatest(seat.clock, v_time) + _stride(l.weight);
        PERFORM _note(p_queue);
    END LOOP;
    FOREACH v_band IN ARRAY v_present LOOP
        CONTINUE WHEN v_band = ANY (v_wanted);
        UPDATE seat SET due = NULL WHERE queue = p_queue AND lane = p_lane AND band = v_band;
        UPDATE ring SET empty_since = v_at
        WHERE queue = p_queue AND band = v_band
          AND NOT EXISTS (SELECT FROM seat WHERE queue = p_queue AND band = v_band AND due IS NOT NULL);
    END LOOP;
    IF l.level IS NOT NULL THEN
        IF l.rate_count IS NOT NULL AND EXISTS (SELECT FROM ready WHERE queue = p_queue AND lane = p_lane) THEN
            v_wait := _lane_token_in(l, v_at);
        END IF;
        UPDATE lane SET wake_at = CASE WHEN v_wait > 0 THEN v_at + v_wait END
        WHERE queue = p_queue AND name = p_lane AND wake_at IS DISTINCT FROM CASE WHEN v_wait > 0 THEN v_at + v_wait END;
    END IF;
END $$;

-- The lanes of a queue that have ready or running jobs; one probe a lane and state.
CREATE OR REPLACE FUNCTION _lanes_in_use(p_queue text) RETURNS text[] LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_lanes text[] := '{}';
    v_lane text;
BEGIN
    SELECT lane INTO v_lane FROM ready WHERE queue = p_queue ORDER BY lane LIMIT 1;
    WHILE v_lane IS NOT NULL LOOP
        v_lanes := v_lanes || v_lane;
        SELECT lane INTO v_lane FROM ready WHERE queue = p_queue AND lane > v_lane ORDER BY lane LIMIT 1;
    END LOOP;
    SELECT lane INTO v_lane FROM lease WHERE queue = p_queue ORDER BY lane LIMIT 1;
    WHILE v_lane IS NOT NULL LOOP
        v_lanes := v_lanes || v_lane;
        SELECT lane INTO v_lane FROM lease WHERE queue = p_queue AND lane > v_lane ORDER BY lane LIMIT 1;
    END LOOP;
    RETURN v_lanes;
END $$;

-- Every lane that a queue has to do with: settings have changed. cost: a look at each.
CREATE OR REPLACE FUNCTION _refresh_all(p_queue text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_lane text;
BEGIN
    IF NOT (SELECT laned FROM queue WHERE name = p_queue) THEN
        RETURN;
    END IF;
    FOR v_lane IN
        SELECT name FROM lane WHERE queue = p_queue
        UNION SELECT lane FROM seat WHERE queue = p_queue
        UNION SELECT unnest(_lanes_in_use(p_queue))
    LOOP
        PERFORM _refresh(p_queue, v_lane);
    END LOOP;
END $$;

-- Time has passed: bring back lanes that have a token again. p_stepped_back: the clock was set back, so tokens that had
-- come with time are not there yet.
CREATE OR REPLACE FUNCTION _refresh_due(p_queue text, p_stepped_back boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_lane text;
BEGIN
    IF p_stepped_back THEN
        FOR v_lane IN SELECT name FROM lane WHERE queue = p_queue AND level IS NOT NULL LOOP
            PERFORM _refresh(p_queue, v_lane);
        END LOOP;
        RETURN;
    END IF;
    FOR v_lane IN
        SELECT name FROM lane WHERE queue = p_queue AND wake_at <= _at() ORDER BY wake_at LIMIT 1000
    LOOP
        PERFORM _refresh(p_queue, v_lane);
    END LOOP;
END $$;

-- The first lane of a queue: from here on it has rings.
CREATE OR REPLACE FUNCTION _become_laned(p_queue text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE queue SET laned = true WHERE name = p_queue AND NOT laned;
    IF FOUND THEN
        PERFORM _split_runs(p_queue);
        PERFORM _refresh(p_queue, '');
    END IF;
END $$;

-- Drop what only says that lanes were here: clocks that the ring has passed, and rings empty for long.
CREATE OR REPLACE FUNCTION _forget_idle(p_queue text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_since bigint := _at() - (SELECT resend_window FROM meta);
BEGIN
    DELETE FROM seat s USING ring r
    WHERE s.queue = p_queue AND r.queue = p_queue AND r.band = s.band AND s.due IS NULL AND s.clock <= r.time;
    DELETE FROM seat s USING ring r
    WHERE s.queue = p_queue AND r.queue = p_queue AND r.band = s.band AND r.empty_since <= v_since;
    DELETE FROM ring r WHERE r.queue = p_queue AND r.empty_since <= v_since;
END $$;

-- How many leases more fit under the limit of a queue; NULL if it has none.
CREATE OR REPLACE FUNCTION _leases_left(q queue) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF q.concurrency IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN q.concurrency - (
        SELECT coalesce(sum(l.remaining), 0) FROM (SELECT remaining FROM lease WHERE queue = q.name LIMIT q.concurrency) l);
END $$;

-- Whether a queue as a whole may hand out a job.
CREATE OR REPLACE FUNCTION _queue_open(q queue, p_at bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN NOT q.paused AND _queue_token_in(q, p_at) = 0 AND (q.concurrency IS NULL OR _leases_left(q) > 0);
END $$;

-- The job that a queue hands out next to anyone, or NULL. p_turns: lanes that have begun a turn that goes on.
CREATE OR REPLACE FUNCTION _next_job(
    q queue, p_draw bigint, p_at bigint, p_turns turns
) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_lane text := '';
    v_band bigint;
    v_n bigint;
BEGIN
    IF NOT _queue_open(q, p_at) THEN
        RETURN NULL;
    END IF;
    IF NOT q.laned THEN
        IF _parked(_lane(q, ''), p_at) IS NOT NULL THEN
            RETURN NULL;
        END IF;
    ELSIF q.one_ring THEN
        v_lane := _next_lane(q.name, 0, p_turns.lanes[array_position(p_turns.rings, 0)]);
        IF v_lane IS NULL THEN
            RETURN NULL;
        END IF;
    ELSE
        v_band := _choose_band(_ring_bands(q), q.bands, q.shares, p_draw);
        IF v_band IS NULL THEN
            RETURN NULL;
        END IF;
        v_lane := _next_lane(q.name, v_band, p_turns.lanes[array_position(p_turns.rings, v_band)]);
    END IF;
    IF q.sequence THEN
        RETURN _head(q.name, v_lane);
    END IF;
    IF v_band IS NULL THEN
        IF q.bands IS NULL AND NOT q.laned THEN
            SELECT n INTO v_n FROM _front(q.name, 1);
            RETURN v_n;
        ELSIF q.bands IS NULL THEN
            SELECT n INTO v_n FROM ready WHERE queue = q.name AND lane = v_lane AND NOT suspect
            ORDER BY band, seq LIMIT 1;
            RETURN v_n;
        END IF;
        v_band := _choose_band(_bands(q.name, v_lane), q.bands, q.shares, p_draw);
    END IF;
    SELECT n INTO v_n FROM ready WHERE queue = q.name AND lane = v_lane AND NOT suspect AND band = v_band
    ORDER BY seq LIMIT 1;
    RETURN v_n;
END $$;

-- The lane of a ring to take from: the one that has begun a turn, unless it has left, or the first. NULL: there is none.
CREATE OR REPLACE FUNCTION _next_lane(p_queue text, p_band bigint, p_begun text) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF p_begun IS NOT NULL AND EXISTS (
        SELECT FROM seat WHERE queue = p_queue AND lane = p_begun AND band = p_band AND due IS NOT NULL) THEN
        RETURN p_begun;
    END IF;
    RETURN (SELECT lane FROM seat WHERE queue = p_queue AND band = p_band AND due IS NOT NULL ORDER BY due, lane LIMIT 1);
END $$;

-- The rings of a queue that have a lane in them, first to last; without weights the first is enough.
CREATE OR REPLACE FUNCTION _ring_bands(q queue) RETURNS bigint[] LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_bands bigint[] := '{}';
    v_band bigint;
BEGIN
    SELECT band INTO v_band FROM seat WHERE queue = q.name AND due IS NOT NULL ORDER BY band LIMIT 1;
    WHILE v_band IS NOT NULL LOOP
        v_bands := v_bands || v_band;
        EXIT WHEN q.bands IS NULL;
        SELECT band INTO v_band FROM seat
        WHERE queue = q.name AND due IS NOT NULL AND band > v_band ORDER BY band LIMIT 1;
    END LOOP;
    RETURN v_bands;
END $$;

-- The suspect that a queue hands out next: first in first out, over the lanes that may.
CREATE OR REPLACE FUNCTION _next_suspect(q queue, p_at bigint) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_n bigint;
    v_lane text;
BEGIN
    IF NOT _queue_open(q, p_at) THEN
        RETURN NULL;
    END IF;
    FOR v_n, v_lane IN
        SELECT n, lane FROM ready WHERE queue = q.name AND suspect ORDER BY seq LIMIT 1000
    LOOP
        IF _parked(_lane(q, v_lane), p_at) IS NULL AND (NOT q.sequence OR _head_of_line(q.name, v_lane) = v_n) THEN
            RETURN v_n;
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

-- Work that never started gives its tokens back: of each what its bucket has not gained since the claim
-- (`returned` in windlass.core.limits).
CREATE OR REPLACE FUNCTION _return_tokens(p_queue text, p_lane text, p_claimed_at bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    q queue;
    l lane;
    v_at bigint := _at();
BEGIN
    SELECT * INTO q FROM queue WHERE name = p_queue;
    IF q.rate_count IS NOT NULL AND q.level IS NOT NULL THEN
        UPDATE queue SET level_at = greatest(v_at, q.level_at), level_per = q.rate_per,
            level = _returned(q.level, q.level_at, q.level_per, q.rate_count, q.rate_per, q.rate_size, v_at, p_claimed_at)
        WHERE name = p_queue;
        PERFORM _note(p_queue);
    END IF;
    IF q.unlimited AND NOT q.laned THEN
        RETURN;
    END IF;
    l := _lane(q, p_lane);
    IF l.rate_count IS NOT NULL AND l.level IS NOT NULL THEN
        UPDATE lane SET level_at = greatest(v_at, l.level_at), level_per = l.rate_per,
            level = _returned(l.level, l.level_at, l.level_per, l.rate_count, l.rate_per, l.rate_size, v_at, p_claimed_at)
        WHERE queue = p_queue AND name = p_lane;
        PERFORM _note(p_queue);
    END IF;
END $$;

-- Count a lease, and take a token, of a job's queue and of its lane; the job is about to leave its place.
CREATE OR REPLACE FUNCTION _occupy(q queue, l lane, j job) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_at bigint := _at();
    v_band bigint := CASE WHEN q.one_ring THEN 0 ELSE j.band END;
    v_clock bigint;
BEGIN
    IF q.laned AND j.crashes < SUSPECT_AFTER THEN
        SELECT clock INTO v_clock FROM seat WHERE queue = q.name AND lane = j.lane AND band = v_band;
        UPDATE ring SET time = v_clock WHERE queue = q.name AND band = v_band AND time < v_clock;
        -- A changed weight counts from the claim after this one.
        UPDATE seat SET clock = due, due = due + _stride(l.weight)
        WHERE queue = q.name AND lane = j.lane AND band = v_band;
    END IF;
    IF q.rate_count IS NOT NULL THEN
        UPDATE queue SET level_at = greatest(v_at, coalesce(q.level_at, v_at)), level_per = q.rate_per,
            level = _taken(q.level, q.level_at, q.level_per, q.rate_count, q.rate_per, q.rate_size, v_at)
        WHERE name = q.name;
    END IF;
    IF l.rate_count IS NOT NULL THEN
        INSERT INTO lane (queue, name) VALUES (q.name, j.lane) ON CONFLICT DO NOTHING;
        UPDATE lane SET level_at = greatest(v_at, coalesce(l.level_at, v_at)), level_per = l.rate_per,
            level = _taken(l.level, l.level_at, l.level_per, l.rate_count, l.rate_per, l.rate_size, v_at)
        WHERE queue = q.name AND name = j.lane;
    END IF;
END $$;
