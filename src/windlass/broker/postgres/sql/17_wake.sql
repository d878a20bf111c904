-- Waking those who listen. A hint: nothing rests on it, everybody also looks now and then.
--
-- NOTIFY takes a lock of the whole database at commit, so it is sent only if somebody listens, and at most once per queue
-- and cooldown (20 ms). Who was woken looks often for as long as that (`windlass.broker.postgres.listening`), and so misses
-- nothing that came too soon after. Whoever listens holds a shared advisory lock of its session meanwhile: behind a pooler
-- nobody does, and nothing is sent.

-- in: queues with something new in them. Keys touched: bell_0 … bell_7, which belong to no transaction. Cost: a few µs a queue.
CREATE OR REPLACE FUNCTION _wake(p_queues text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_room integer := 'job'::regclass::oid::integer;
    v_now bigint := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    v_rung bigint;
    v_bell regclass;
    v_queue text;
BEGIN
    IF pg_try_advisory_lock(1464422981, v_room) THEN
        PERFORM pg_advisory_unlock(1464422981, v_room);
        RETURN;   -- nobody listens
    END IF;
    FOR v_queue IN SELECT DISTINCT u FROM unnest(p_queues) u LOOP
        v_bell := ('bell_' || (hashtext(v_queue) & 7))::regclass;
        v_rung := coalesce(pg_sequence_last_value(v_bell), 0);
        IF v_now < v_rung OR v_now >= v_rung + 20 THEN
            PERFORM setval(v_bell, v_now), pg_notify('windlass_' || v_room, v_queue);
        END IF;
    END LOOP;
END $$;

-- At the commit of a caller's own transaction; with the rights of the namespace's owner, and its names.
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

-- After a step that has made jobs claimable in queues that its caller does not know: given back, promoted, replayed, resumed.
CREATE OR REPLACE FUNCTION wake_all() RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM _wake(ARRAY(SELECT q.name FROM queue q));
END $$;
