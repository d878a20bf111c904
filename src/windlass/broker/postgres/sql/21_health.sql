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
    -- Whatever holds the oldest snapshot keeps vacuum from removing what claims and settlements leave behind. A transaction
    -- that was prepared for a second phase does so until somebody ends it, also over a restart.
    SELECT (extract(epoch FROM now() - o.since) * 1000000)::bigint, o.by INTO oldest_transaction, oldest_by
    FROM (SELECT a.xact_start AS since, format('pid %s (%s)', a.pid, a.application_name) AS by
          FROM pg_stat_activity a
          WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid() AND a.datname = current_database()
          UNION ALL
          SELECT p.prepared, format('prepared transaction %s', p.gid)
          FROM pg_prepared_xacts p WHERE p.database = current_database()) o
    ORDER BY o.since LIMIT 1;
    not_taken_in := (SELECT count(*) FROM (SELECT FROM inbox LIMIT 10000) b);
END $$;

-- The standby that keeps vacuum from its work, itself or by its slot, which does so also once the standby is gone. out: which, and since how many
-- transactions: nobody notes the time.
CREATE OR REPLACE FUNCTION health_of_standbys(OUT pinned_by text, OUT pinned_for bigint) LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT o.by, age(o.xmin) FROM (
        SELECT s.xmin, format('replication slot %s', s.slot_name) AS by FROM pg_replication_slots s WHERE s.xmin IS NOT NULL
        UNION ALL
        SELECT r.backend_xmin, format('standby %s', r.application_name) FROM pg_stat_replication r WHERE r.backend_xmin IS NOT NULL) o
    UNION ALL SELECT NULL, 0
    ORDER BY 2 DESC LIMIT 1
$$;

-- Room that vacuum has freed and nothing has taken again, and how the partitions fill. An estimate from what ANALYZE saw: rows
-- times their mean width, with an eighth more for what pages need, held against the size of the table.
CREATE OR REPLACE FUNCTION health_of_tables(
    OUT bloated text, OUT bloat bigint, OUT partitions integer, OUT in_default bigint
) LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    SELECT t.relname, t.size - t.needed INTO bloated, bloat
    FROM (SELECT c.relname::text, pg_relation_size(c.oid) AS size,
                 (greatest(c.reltuples, 0) * (28 + coalesce(sum(s.avg_width), 0)) * 1.125)::bigint AS needed
          FROM pg_class c LEFT JOIN pg_stats s ON s.schemaname = current_schema() AND s.tablename = c.relname
          WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
          GROUP BY c.oid, c.relname, c.reltuples) t
    ORDER BY t.size - t.needed DESC LIMIT 1;
    SELECT count(*), coalesce(sum(pg_stat_get_live_tuples(c.oid))
                              FILTER (WHERE pg_get_expr(c.relpartbound, c.oid) = 'DEFAULT'), 0)
    INTO partitions, in_default
    FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relispartition AND c.relkind = 'r';
END $$;
