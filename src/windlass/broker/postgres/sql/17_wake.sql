-- Waking those who listen. A hint: nothing rests on it, everybody also looks now and then.
--
-- NOTIFY takes a lock of the whole database at commit, so it is sent only if somebody listens, and at most once per queue
-- and cooldown (20 ms), unless many queues are rung for in turns. Who listens looks often for twice as long afterwards
-- (`windlass.broker.postgres.listening`), and so misses nothing that came too soon to be told and was committed within 20 ms. Whoever
-- listens holds a shared advisory lock of its session meanwhile: behind a pooler nobody does, and nothing is sent.

-- in: queues with something new in them. To be called last: a bell that was rung stays so if the transaction fails, and what is rung for
-- within 20 ms is not told. Keys touched: bell_0 … bell_7, which belong to no transaction: each knows when it was rung, in ms, and for whom
-- (20 bits of a hash). A queue has two of them, and rings the one that was rung before the other, so that queues that share one
-- seldom forget each other. Cost: a few µs a queue.
CREATE OR REPLACE FUNCTION _wake(p_queues text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_room integer := 'job'::regclass::oid::integer;
    v_now bigint := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    v_hash bigint;
    v_one regclass;
    v_other regclass;
    v_rung_one bigint;
    v_rung_other bigint;
    v_queue text;
BEGIN
    IF pg_try_advisory_lock(1464422981, v_room) THEN
        PERFORM pg_advisory_unlock(1464422981, v_room);
        RETURN;   -- nobody listens
    END IF;
    FOR v_queue IN SELECT DISTINCT u FROM unnest(p_queues) u LOOP
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
END $$;

-- in: what a bell says, the hash of a queue, ms. out: whether it was rung for that queue within the cooldown; not if the clock was set back.
CREATE OR REPLACE FUNCTION _just_rung(p_rung bigint, p_hash bigint, p_now bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT p_rung & 1048575 = p_hash AND p_now >= p_rung >> 20 AND p_now < (p_rung >> 20) + 20
$$;

-- Ring for the queues in which jobs have become ready in this transaction one by one: accepted the long way, retried, spawned, freed by
-- others' ends, let go, taken in. `_put` notes them. To be called last, as `_wake`.
CREATE OR REPLACE FUNCTION _wake_filled() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_filled text := current_setting('windlass.filled', true);
BEGIN
    IF v_filled <> '' THEN
        PERFORM set_config('windlass.filled', '', true);
        PERFORM _wake(string_to_array(v_filled, E'\n'));
    END IF;
END $$;

-- At the commit of a caller's own transaction; with the rights of the namespace's owner, and its names. If that fails later, at a constraint
-- of the caller's, what comes within 20 ms is found by those who look by themselves: ringing each time would make such commits wait for each other.
CREATE OR REPLACE FUNCTION _ring_for_inbox() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM _wake(ARRAY(SELECT DISTINCT a.queue FROM unnest(NEW.jobs) a));
    RETURN NULL;
END $$;

-- For who listens. out: the channel, and the other half of the lock's key.
CREATE OR REPLACE FUNCTION bell(OUT channel text, OUT room integer) LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    room := 'job'::regclass::oid::integer;
    channel := 'windlass_' || room;
END $$;

-- For processes of before, which call it after steps that ring by themselves now.
CREATE OR REPLACE FUNCTION wake_all() RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM _wake(ARRAY(SELECT q.name FROM queue q));
END $$;
