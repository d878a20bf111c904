-- The step: its time, its locks, its bounds.
--
-- A verb is one transaction. It begins with `_begin_shared` or `_begin_exclusive`, and ends with `_ring`. (`beat` and the steps in callers' own
-- transactions begin with `_begin` and take no lock of the namespace. `annotate` makes nothing claimable and does not ring.) What its inner functions need to know is kept in
-- settings of the transaction: windlass.at (the time), windlass.fan_out (dependents that may still be told), windlass.telling (whether an end is put
-- in line instead of being told at once), windlass.recording (whether transitions are collected in `moved`), windlass.filled (queues to ring for).
--
-- Locks, in this order:
--   1. of the namespace. Claim, settle, annotate, and an enqueue into queues without lanes share it. Every other step has it exclusively, and so
--      has an enqueue into a queue with lanes. So what is written for one step at a time is never interleaved.
--   2. of the lanes of a queue, for steps that share the first. A step that has the namespace exclusively needs none.
--   3. of rows. `settle` ends its jobs before it locks lanes; a step that holds lanes never waits for such rows (SKIP LOCKED, NOWAIT). An
--      enqueue inserts its jobs in the order of their ids: each insert waits for a step that is creating or ending a job of that id.
-- A verb looks at its arguments and at the flags of its queues, takes the locks, and looks again. If more is needed than it has, `_must_be_exclusive`
-- undoes the step, and the verb begins it anew, exclusively.

-- in: the clock of a test, or NULL for the server's own. out: the time of the step (`_store_time`). cost: one row.
CREATE OR REPLACE FUNCTION _seen_at(p_now bigint) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_clock bigint := coalesce(p_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
BEGIN
    RETURN (SELECT _store_time(v_clock, mark, session_ttl) FROM meta);
END $$;

-- Begin a step that takes no lock of the namespace.
CREATE OR REPLACE FUNCTION _begin(p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('windlass.at', _seen_at(p_now)::text, true);
END $$;

-- A setting of the transaction; '' before it was set.
CREATE OR REPLACE FUNCTION _setting(p_name text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT coalesce(current_setting(p_name, true), '')
$$;

-- Begin a step that shares the namespace with others, which touch only plain jobs and lanes.
CREATE OR REPLACE FUNCTION _begin_shared(p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(1464422980, 'job'::regclass::oid::integer);
    PERFORM _begin(p_now);
END $$;

-- Begin a step that has the namespace exclusively, until the end of its transaction. What came by callers' own transactions is taken in first.
CREATE OR REPLACE FUNCTION _begin_exclusive(p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1464422980, 'job'::regclass::oid::integer);
    PERFORM _begin(p_now);
    IF EXISTS (SELECT FROM inbox) OR EXISTS (SELECT FROM aftermath) THEN
        PERFORM _take_in();
    END IF;
END $$;

-- Lock the namespace for a step that may as well be made later: all that come meanwhile wait behind it. in: for how many ms it may wait. out: whether
-- it has the lock.
CREATE OR REPLACE FUNCTION _lock_within(p_ms bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_before text := current_setting('lock_timeout');
BEGIN
    PERFORM set_config('lock_timeout', p_ms::text, true);
    PERFORM pg_advisory_xact_lock(1464422980, 'job'::regclass::oid::integer);
    PERFORM set_config('lock_timeout', v_before, true);
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END $$;

-- Lock the lanes of those of these queues that have some: rings and seats change, and leases of a lane are counted, one step at a time.
CREATE OR REPLACE FUNCTION _lock_lanes(p_queues text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_room bigint := 'job'::regclass::oid::bigint << 32;
    v_lock bigint;
BEGIN
    -- In one order, so that nobody waits in a circle.
    FOR v_lock IN SELECT DISTINCT v_room | (hashtext(name)::bigint & 4294967295) FROM queue WHERE name = ANY (p_queues) AND laned ORDER BY 1 LOOP
        PERFORM pg_advisory_xact_lock(v_lock);
    END LOOP;
END $$;

-- Give up a step that turned out to need the namespace to itself.
CREATE OR REPLACE FUNCTION _must_be_exclusive() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'this step needs the namespace to itself' USING ERRCODE = 'WL001';
END $$;

-- The first of 1,024 numbers that nobody else has.
CREATE OR REPLACE FUNCTION _draw_numbers() RETURNS bigint LANGUAGE sql VOLATILE AS $$ SELECT nextval('number') * DRAW $$;

-- The time of the step.
CREATE OR REPLACE FUNCTION _at() RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT current_setting('windlass.at')::bigint
$$;

-- For migrations: give every role that may use one table the same rights on a new one.
CREATE OR REPLACE FUNCTION _give_rights_of(p_table text, p_new text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_right text;
BEGIN
    FOR v_right IN
        SELECT format('GRANT %s ON %I TO %s', string_agg(DISTINCT a.privilege_type, ', '), p_new,
            CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END)
        FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a WHERE c.oid = p_table::regclass AND a.grantee <> c.relowner
        GROUP BY a.grantee
    LOOP
        EXECUTE v_right;
    END LOOP;
END $$;

-- Waking ------------------------------------------------------------------------------------------------------------------------------------------------
--
-- NOTIFY takes a lock of the whole database at commit, so it is sent only if a worker listens, and at most once per queue and cooldown (20 ms). A
-- worker that was told looks often for twice as long (`listening.py`), and so misses nothing that came too soon to be told and was committed within
-- 20 ms. A listener holds a shared advisory lock of its session meanwhile: behind a pooler nobody does, and nothing is sent. A hint: nothing rests
-- on it, everybody also looks now and then.

-- Note that a queue may have something to hand out that it did not have before.
CREATE OR REPLACE FUNCTION _note(p_queue text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_filled text := _setting('windlass.filled');
BEGIN
    IF v_filled = '' THEN
        PERFORM set_config('windlass.filled', p_queue, true);
    ELSIF p_queue <> ALL (string_to_array(v_filled, E'\n')) THEN
        PERFORM set_config('windlass.filled', v_filled || E'\n' || p_queue, true);
    END IF;
END $$;

-- Note that these queues have fewer leases, or shorter lines. A lane that may have one more lease enters its ring, which notes its queue; this is for
-- limits of the whole queue, and of lane '' in a queue without lanes.
CREATE OR REPLACE FUNCTION _note_freed(p_queues text[]) RETURNS void LANGUAGE sql AS $$
    SELECT _note(name) FROM queue
    WHERE name = ANY (p_queues) AND (concurrency IS NOT NULL OR (NOT laned AND (lane_concurrency IS NOT NULL OR sequence)))
$$;

-- Ring for the queues that were noted. The last thing that a verb does: a bell that was rung stays so if the transaction fails. Keys touched: bell_0 …
-- bell_7, which belong to no transaction: each knows when it was rung, in ms, and for whom (20 bits of a hash). A queue has two of them, and rings
-- the one that was rung before the other, so that queues that share one seldom silence each other. Cost: a few µs a queue.
CREATE OR REPLACE FUNCTION _ring() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_filled text := _setting('windlass.filled');
    v_room integer;
    v_now bigint;
    v_hash bigint;
    v_one regclass;
    v_other regclass;
    v_rung_one bigint;
    v_rung_other bigint;
    v_queue text;
BEGIN
    IF v_filled = '' THEN
        RETURN;
    END IF;
    v_room := 'job'::regclass::oid::integer;
    IF pg_try_advisory_lock(1464422981, v_room) THEN
        PERFORM pg_advisory_unlock(1464422981, v_room);
        RETURN;   -- nobody listens
    END IF;
    v_now := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    FOREACH v_queue IN ARRAY string_to_array(v_filled, E'\n') LOOP
        v_hash := hashtext(v_queue) & 1048575;
        v_one := ('bell_' || (v_hash & 7))::regclass;
        v_other := ('bell_' || (v_hash >> 3 & 7))::regclass;
        v_rung_one := coalesce(pg_sequence_last_value(v_one), 0);
        v_rung_other := coalesce(pg_sequence_last_value(v_other), 0);
        IF NOT _just_rung(v_rung_one, v_hash, v_now) AND NOT _just_rung(v_rung_other, v_hash, v_now) THEN
            PERFORM setval(CASE WHEN v_rung_one <= v_rung_other THEN v_one ELSE v_other END, v_now << 20 | v_hash),
                pg_notify('windlass_' || v_room, v_queue);
        END IF;
    END LOOP;
    PERFORM set_config('windlass.filled', '', true);
END $$;

-- in: what a bell says, the hash of a queue, ms. out: whether it was rung for that queue within the cooldown; not if the clock was set back.
CREATE OR REPLACE FUNCTION _just_rung(p_rung bigint, p_hash bigint, p_now bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT p_rung & 1048575 = p_hash AND p_now >= p_rung >> 20 AND p_now < (p_rung >> 20) + 20
$$;

-- At the commit of a caller's own transaction; with the rights of the namespace's owner, and its names. If that fails later, at a constraint
-- of the caller's, what comes within 20 ms is found by workers that look by themselves: ringing each time would make such commits wait for each other.
CREATE OR REPLACE FUNCTION _ring_for_inbox() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM _note(a.queue) FROM (SELECT DISTINCT (b.job).queue FROM inbox b WHERE b.call = NEW.call) a;
    PERFORM _ring();
    RETURN NULL;
END $$;

-- For a client that listens. out: the channel, and the other half of the lock's key.
CREATE OR REPLACE FUNCTION bell(OUT channel text, OUT room integer) LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    room := 'job'::regclass::oid::integer;
    channel := 'windlass_' || room;
END $$;
