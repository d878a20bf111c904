-- For any language: one job, by name, in the transaction that is open (or in one of its own).
--
--     SELECT windlass.enqueue('send', '{"to": "a@example.com"}', delay => '5 minutes', key => 'order-42');
--
-- in: the task; its arguments, a JSON object by name or an array by position; options. Without `queue` and `max_attempts`
-- those count with which workers have registered the task, else "default" and 5. out: the id of the job, or of the one
-- whose key stands for it; an error (WL003) if it is refused. Keys touched: document; those of `enqueue_here`, with whose
-- rights it runs. Cost: O(1).
CREATE OR REPLACE FUNCTION enqueue(
    task text, payload json DEFAULT '{}', queue text DEFAULT NULL, lane text DEFAULT '', priority integer DEFAULT 0,
    key text DEFAULT NULL, delay interval DEFAULT NULL, run_at timestamptz DEFAULT NULL, expires interval DEFAULT NULL,
    max_attempts integer DEFAULT NULL, tags text[] DEFAULT NULL, id uuid DEFAULT NULL
) RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    r receipt;
    v_id uuid := coalesce(enqueue.id, _new_id());
    v_registered json := (SELECT convert_from(coalesce(d.override, d.declared), 'UTF8')::json
                          FROM document d WHERE d.kind = 'task' AND d.name = enqueue.task AND d.lane = '');
    v_call bytea;
BEGIN
    PERFORM _check_by_name(task, payload, lane, priority, key, delay, expires, max_attempts, tags);
    IF left(task, 9) = 'windlass.' OR left(queue, 9) = 'windlass.' THEN
        RAISE EXCEPTION 'tasks and queues whose names begin with "windlass." are reserved for Windlass itself' USING ERRCODE = 'WL003';
    END IF;
    v_call := convert_to(
        format('{"v":1,"%s":%s}', CASE json_typeof(payload) WHEN 'array' THEN 'a' ELSE 'k' END, payload), 'UTF8');
    SELECT * INTO r FROM enqueue_here(NULL, '{1}', ARRAY[v_id], ARRAY[task],
        ARRAY[coalesce(queue, v_registered ->> 'queue', 'default')], ARRAY[lane], ARRAY[priority::smallint], ARRAY[key], '{0}',
        '{0}', ARRAY[coalesce(_micros(delay), 0)], ARRAY[(extract(epoch FROM run_at) * 1000000)::bigint],
        ARRAY[_micros(expires)], ARRAY[v_call], ARRAY[NULL]::bytea[],
        ARRAY[CASE WHEN cardinality(tags) > 0 THEN convert_to(to_json(tags)::text, 'UTF8') END],
        ARRAY[coalesce(max_attempts, (v_registered ->> 'max_attempts')::integer, 5)], '{0}', ARRAY[''], '{}', '{}', '{}');
    IF r.status = 'refused' THEN
        RAISE EXCEPTION '%', r.why USING ERRCODE = 'WL003';
    END IF;
    RETURN coalesce(r.of, v_id);
END $$;

-- Refuse what the client would refuse (`windlass.core.names`, `windlass.core.job`), in its words.
CREATE OR REPLACE FUNCTION _check_by_name(
    task text, payload json, lane text, priority integer, key text, delay interval, expires interval, max_attempts integer,
    tags text[]
) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_why text := CASE
        WHEN task IS NULL OR task !~ '^[A-Za-z0-9_][A-Za-z0-9_.:/@-]{0,99}$'
            THEN 'a task name is 1 to 100 letters, digits and any of _ . : / @ -'
        WHEN payload IS NULL OR json_typeof(payload) NOT IN ('object', 'array')
            THEN 'the payload is a JSON object (arguments by name) or an array (by position)'
        WHEN octet_length(payload::text) > 1048576 THEN 'a payload has at most 1048576 bytes'
        WHEN lane IS NULL OR octet_length(lane) > 200 OR lane ~ '[\x01-\x1f\x7f-\x9f]'
            THEN 'a lane is text of at most 200 bytes without control characters'
        WHEN key = '' OR octet_length(key) > 200 OR key ~ '[\x01-\x1f\x7f-\x9f]'
            THEN 'a key is text of 1 to 200 bytes without control characters'
        WHEN priority IS NULL OR priority NOT BETWEEN -100 AND 100 THEN format('priority must be from -100 to 100, not %s', priority)
        WHEN max_attempts NOT BETWEEN 1 AND 10000 THEN format('max_attempts must be from 1 to 10000, not %s', max_attempts)
        WHEN delay < interval '0' THEN format('delay must not be negative, not %s', delay)
        WHEN expires <= interval '0' THEN format('expires must be positive, not %s', expires)
        WHEN cardinality(tags) > 16 OR EXISTS (SELECT FROM unnest(tags) t WHERE coalesce(t, '') = '' OR octet_length(t) > 100)
            THEN 'a job has at most 16 tags of 1 to 100 bytes'
    END;
BEGIN
    IF v_why IS NOT NULL THEN
        RAISE EXCEPTION '%', v_why USING ERRCODE = 'WL003';
    END IF;
END $$;

CREATE OR REPLACE FUNCTION _micros(p interval) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT (extract(epoch FROM p) * 1000000)::bigint
$$;

-- A UUID of version 7: older servers have no function for it.
CREATE OR REPLACE FUNCTION _new_id() RETURNS uuid LANGUAGE sql VOLATILE AS $$
    SELECT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid()) PLACING
        substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid
$$;
