-- The ledger, version 1: the authority on every job. Times are this database's clock.
--
-- Text that is compared (lanes, keys, runs) is COLLATE "C": byte by byte, the same on every server whatever its
-- locale, and in the order in which a daemon sorts its batches.

-- One row per job, from its first claim (or its manifest) until its retention ends.
--
-- Nearly every write here is an update of a row that was written moments ago: claimed, then done, then settled.
-- fillfactor 50 leaves room beside each row for its next version, and no index names a column that a transition
-- changes (state, times, fence), not even in a predicate. Both together make the updates HOT: no index entry is
-- written, and old versions are pruned without vacuum. An index on the state would double the cost of every job.
create table acklast.jobs (
    lane         text collate "C" not null,
    key          text collate "C" not null,
    state        text not null check (state in
                     ('queued', 'claimed', 'waiting', 'done', 'dead', 'unresolved', 'cancelled')),
    fence        bigint not null default 0,         -- only grows: every claim and every operator's transition adds 1
    attempts     integer not null default 0,        -- attempts that count
    claims       integer not null default 0,        -- attempts started, counted or not
    rate_limited integer not null default 0,        -- refusals for a quota: they spend no attempt
    ambiguous    boolean not null default false,    -- an attempt may have had its effect without a record of it
    session      bigint,                            -- workers.id of the last claim; no foreign key: it would cost
                                                    -- a lock on the worker's row for every claim
    ticket       bigint,                            -- the claim call that holds it: makes a repeated flush harmless
    enqueued_at  timestamptz not null default clock_timestamp(),
    published_at timestamptz,
    claimed_at   timestamptz,
    available_at timestamptz,                       -- where waiting: not before this
    effect_at    timestamptz,                       -- when the handler returned
    recorded_at  timestamptz,
    settled_at   timestamptz,                       -- when the delivery was acknowledged; written lazily
    deadline     timestamptz,
    fingerprint  bytea,                             -- null until the first delivery tells it
    type         text,
    run          text collate "C",
    reason       text,                              -- of the last verdict that was not done
    result       jsonb,
    primary key (lane, key)
) with (fillfactor = 50);

-- A run's account, and nothing else, reads by run. The run never changes once it is set.
create index jobs_run on acklast.jobs (run) where run is not null;

-- Attempts that did not simply succeed: a job that is done at its first attempt has none.
create table acklast.attempts (
    lane       text collate "C" not null,
    key        text collate "C" not null,
    fence      bigint not null,
    attempt    integer not null,
    outcome    text not null,                       -- done, rate_limited, transient, permanent, unknown, interrupted, crashed
    reason     text not null,
    detail     text not null default '',
    started_at timestamptz,
    ended_at   timestamptz,
    worker     text not null,
    version    text not null,
    primary key (lane, key, fence)
);

-- Messages that came to an end without their effect, with what is needed to look at them and to try them again.
create table acklast.dead_letters (
    id               bigint generated always as identity primary key,
    lane             text collate "C" not null,
    key              text collate "C",               -- null where the message had none that is valid
    fence            bigint,                         -- null for a message without a job of its own
    run              text collate "C",
    type             text,
    content_type     text,
    reason           text not null,
    detail           text not null default '',
    failure          text not null,                  -- fingerprint of reason and detail: groups what failed alike
    exchange         text not null default '',
    routing_key      text not null default '',
    headers          jsonb not null default '{}',
    properties       jsonb not null default '{}',
    payload          bytea,                          -- null once its retention has ended
    trace_id         text,
    attempts         integer not null default 0,
    first_failure_at timestamptz not null,
    last_failure_at  timestamptz not null,
    seen             integer not null default 1,
    worker           text not null,
    version          text not null,
    digest           bytea                           -- set for a message without a job of its own
);

create index dead_letters_job on acklast.dead_letters (lane, key);

-- The same malformed message, delivered twice, is one letter seen twice.
create unique index dead_letters_digest on acklast.dead_letters (lane, digest) where digest is not null;

-- Bounded sets of jobs. A run that foreign publishers name by the header alone has no row here.
create table acklast.runs (
    run        text collate "C" primary key,
    manifest   bigint not null default 0,            -- jobs promised
    deadline   timestamptz,
    created_at timestamptz not null default clock_timestamp()
);

-- Worker sessions: one row per daemon process. A claim is live while its session is. The lease is renewed
-- every few seconds; ended_at is final, and is set before anyone takes a claim over (see claims in flush.py).
create table acklast.workers (
    id          bigint generated always as identity primary key,
    instance    text not null,
    worker      text not null,                       -- host and process, for people
    version     text not null,
    lease_s     double precision not null check (lease_s > 0),
    started_at  timestamptz not null default clock_timestamp(),
    lease_until timestamptz not null,
    ended_at    timestamptz
) with (fillfactor = 50);

create index workers_open on acklast.workers (instance) where ended_at is null;

-- Named downstream quotas, shared by every daemon that uses the downstream.
create table acklast.budgets (
    name          text collate "C" primary key,
    quota         integer not null check (quota > 0),
    period_s      double precision not null check (period_s > 0),
    paused_until  timestamptz,
    paused_reason text,
    updated_at    timestamptz not null default clock_timestamp()
);

-- Jobs that an application promised in its own transaction and that are not published yet. Published rows go.
create table acklast.outbox (
    id             bigint generated always as identity primary key,
    lane           text collate "C" not null,
    routing_suffix text not null default '',
    key            text collate "C" not null,
    type           text,
    content_type   text not null default 'application/json',
    run            text collate "C",
    priority       smallint check (priority between 0 and 9),
    deadline       timestamptz,
    not_before     timestamptz,
    headers        jsonb not null default '{}',
    payload        bytea not null,
    created_at     timestamptz not null default clock_timestamp()
);

-- Requests to try dead or unresolved jobs again, worked off at a pace.
create table acklast.redrives (
    id           bigint generated always as identity primary key,
    actor        text not null,
    lane         text collate "C",
    selection    jsonb not null,                     -- which letters: reason, run, failure, time
    rate_per_s   double precision check (rate_per_s > 0),
    status       text not null default 'open' check (status in ('open', 'paused', 'finished', 'stopped')),
    redriven     bigint not null default 0,
    last_letter  bigint not null default 0,          -- dead_letters.id up to which it is done
    created_at   timestamptz not null default clock_timestamp(),
    finished_at  timestamptz
);

-- Jobs that are due again and again.
create table acklast.schedules (
    name         text collate "C" primary key,
    lane         text collate "C" not null,
    type         text,
    expression   text not null,                      -- cron
    timezone     text not null default 'UTC',
    content_type text not null default 'application/json',
    payload      bytea not null,
    enabled      boolean not null default true,
    last_due_at  timestamptz,
    next_due_at  timestamptz,
    created_at   timestamptz not null default clock_timestamp()
);

-- What people did to jobs, and when.
create table acklast.audit (
    id     bigint generated always as identity primary key,
    at     timestamptz not null default clock_timestamp(),
    actor  text not null default session_user,
    action text not null,
    lane   text collate "C",
    key    text collate "C",
    run    text collate "C",
    detail jsonb not null default '{}'
);

create index audit_job on acklast.audit (lane, key) where key is not null;
