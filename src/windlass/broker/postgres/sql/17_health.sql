-- What an operator should know of the server: for `windlass doctor`.
--
-- in: nothing. out: one row. Keys touched: statistics of the server, which other roles may not see in full. Cost: a look at
-- each connection and each table of the namespace.
CREATE OR REPLACE FUNCTION health(
    OUT server text, OUT synchronous_commit text, OUT in_recovery boolean, OUT layout integer, OUT revision integer,
    OUT rows_live bigint, OUT rows_dead bigint, OUT bytes bigint, OUT vacuumed_before bigint, OUT oldest_transaction bigint,
    OUT oldest_by text, OUT not_taken_in bigint
) LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    server := current_setting('server_version');
    synchronous_commit := current_setting('synchronous_commit');
    in_recovery := pg_is_in_recovery();
    SELECT l.number, l.revision INTO layout, revision FROM layout l;
    SELECT sum(t.n_live_tup), sum(t.n_dead_tup), sum(pg_total_relation_size(t.relid)),
        (extract(epoch FROM now() - max(greatest(t.last_vacuum, t.last_autovacuum))) * 1000000)::bigint
    INTO rows_live, rows_dead, bytes, vacuumed_before
    FROM pg_stat_user_tables t WHERE t.schemaname = current_schema();
    -- Whatever holds the oldest snapshot keeps vacuum from removing what claims and settlements leave behind.
    SELECT (extract(epoch FROM now() - a.xact_start) * 1000000)::bigint, format('pid %s (%s)', a.pid, a.application_name)
    INTO oldest_transaction, oldest_by
    FROM pg_stat_activity a
    WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid() AND a.datname = current_database()
    ORDER BY a.xact_start LIMIT 1;
    not_taken_in := (SELECT count(*) FROM (SELECT FROM inbox LIMIT 10000) b);
END $$;
