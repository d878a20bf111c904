-- The first layout of a namespace, second part: what verbs are called with and answer, what callers leave in transactions of their own, and bells.

-- What a verb is called with, and what it answers.
CREATE TYPE asked AS (
    i            integer,
    id           uuid,
    task         text,
    queue        text,
    lane         text,
    priority     smallint,
    key          text,
    mode         smallint,
    win          bigint,
    delay        bigint,
    run_at       bigint,
    expires      bigint,
    payload      bytea,
    headers      bytea,
    tags         bytea,
    max_attempts integer,
    revision     bigint,
    flow         text,
    after_ids    uuid[],
    after_on     smallint[],
    status       text,          -- in `inbox`: what the call was answered
    of           uuid,
    dead         bytea          -- why it is born dead
);
CREATE TYPE receipt AS (i integer, status text, of uuid, refusal text, why text);
-- The head of a take (no place), then its receipts.
CREATE TYPE taken AS (status text, of uuid, refusal text, why text, identity text, at text, moved_at bigint);
CREATE TYPE ruling AS (
    outcome     text,
    move        text,
    state       smallint,
    reason      text,
    delay       bigint,
    charged     boolean,
    keeps_place boolean
);
-- What the store knows about a running job when its lease ends (`windlass.core.settlement.Standing`).
CREATE TYPE job_facts AS (
    attempt          integer,
    max_attempts     integer,
    crashes          integer,
    cancel_requested boolean,
    superseded       boolean,
    holds            integer,
    held_for         bigint
);
CREATE TYPE answer AS (verdict text, outcome text, state smallint, why text);
-- Jobs that follow each other.
CREATE TYPE run AS (n bigint, width integer);
CREATE TYPE ask AS (
    queues     text[],
    slots      integer,
    size       integer,
    session    text,
    seq        bigint,
    visibility bigint,
    suspects   boolean,    -- whether it is for those alone
    max_bytes  bigint,
    draw       bigint,
    soon       integer     -- jobs under a limit that may be handed out, at least `slots`
);
-- Whose turn it is, during one claim: for each ring the lane that has begun one (NULL: it is over), and how many jobs it had in it.
CREATE TYPE turns AS (rings bigint[], lanes text[], taken integer[]);
-- What a claim has taken so far, and how the last step of it went.
CREATE TYPE taking AS (
    leases  run[],
    count   integer,
    bytes   bigint,
    spare   integer,     -- expired jobs that may still be looked after
    turns   turns,
    stopped boolean,     -- a bound of the ask stopped it
    odd     boolean,     -- the next job has to be looked at by itself
    empty   boolean,     -- the queue hands out nothing more
    missed  boolean      -- jobs were passed over that another step may leave in a moment
);
-- The first row is the head (no jobs), the others are leases, a run each.
CREATE TYPE claimed AS (
    asker        text,
    more         boolean,
    next_in      bigint,
    suspects     integer,
    verdicts     text[],
    outcomes     text[],
    states       smallint[],
    whys         text[],
    ids          uuid[],                              -- of the jobs of a run, which have all but these two in common
    payloads     bytea[],
    fence        bigint,
    task         text,
    queue        text,
    lane         text,
    priority     smallint,
    attempt      integer,
    max_attempts integer,
    crashes      integer,
    revision     bigint,
    headers      bytea,
    tags         bytea,
    flow         text,
    parents      uuid[],
    memo_names   text[],
    memo_values  bytea[],
    waited       bigint,
    expires_in   bigint,
    visibility   bigint
);
-- Jobs that were enqueued in a transaction of the caller's own, with what each call was answered: only inserted there, so that nobody ever waits
-- for it. The store takes them in, group by group, once they are committed. Until then calls find them by their ids and keys.
CREATE TABLE inbox (
    call   bigint  NOT NULL,                          -- the number of its group
    i      integer NOT NULL,                          -- its place in the group, from 1
    parent uuid,                                      -- the job that spawned it
    job    asked   NOT NULL,
    PRIMARY KEY (call, i)
);
CREATE INDEX inbox_id  ON inbox (((job).id));
CREATE INDEX inbox_key ON inbox (((job).queue), ((job).lane), ((job).task), ((job).key)) WHERE (job).key IS NOT NULL;
-- Leases that were settled as done in a transaction of the caller's own; what that brings about is done afterwards. The children are in `inbox`.
CREATE TABLE aftermath (
    job     uuid    PRIMARY KEY,
    i       bigint  NOT NULL DEFAULT nextval('number'),
    fence   bigint  NOT NULL,
    runtime bigint,
    result  bytea
);
-- A job as it is read; listings leave out what is large. In the head of a page, `n` is where to go on.
CREATE TYPE job_row AS (
    place            bigint,
    id               uuid,
    n                bigint,
    task             text,
    queue            text,
    lane             text,
    priority         smallint,
    state            smallint,
    reason           text,
    attempt          integer,
    max_attempts     integer,
    crashes          integer,
    fence            bigint,
    key              text,
    tags             bytea,
    flow             text,
    parent           uuid,
    revision         bigint,
    accepted_at      bigint,
    due_at           bigint,
    expires_at       bigint,
    finished_at      bigint,
    session          text,
    cancel_requested boolean,
    hold_key         text,
    hold_reason      bytea,
    held_since       bigint,
    held_times       integer,
    waiting_for      integer,
    replays          integer,
    permille         integer,
    message          bytea,
    pruned           boolean,
    payload          bytea,
    headers          bytea,
    after_ids        uuid[],
    after_on         smallint[],
    result           bytea,
    error            bytea,
    history          text,
    lines            bytea[],
    memos            text[]
);

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
    FOR EACH ROW WHEN (NEW.i = 1) EXECUTE FUNCTION _ring_for_inbox();
