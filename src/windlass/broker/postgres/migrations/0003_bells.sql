-- Layout 3: waking those who listen, once per queue and cooldown (`17_wake.sql`).
--
-- When each queue was last rung for, in milliseconds, by the hash of its name. Sequences, since they belong to no
-- transaction: a row that every enqueue may change would be waited for, and leave dead versions that a reader wades through.
CREATE SEQUENCE bell_0;
CREATE SEQUENCE bell_1;
CREATE SEQUENCE bell_2;
CREATE SEQUENCE bell_3;
CREATE SEQUENCE bell_4;
CREATE SEQUENCE bell_5;
CREATE SEQUENCE bell_6;
CREATE SEQUENCE bell_7;

-- A caller's own transaction may stay open for minutes: it is rung for at its commit.
CREATE FUNCTION _ring_for_inbox() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER ring AFTER INSERT ON inbox DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION _ring_for_inbox();
