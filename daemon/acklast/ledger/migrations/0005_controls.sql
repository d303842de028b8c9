-- What operators ask of lanes and budgets, for every daemon, and what the daemons tell of their lanes.

-- What is in force, one row for each thing that was asked. A row that is over (until) counts for nothing; the
-- next change removes it. Who did what before is in the audit.
create table acklast.controls (
    target   text not null check (target in ('lane', 'budget')),
    name     text collate "C" not null,
    control  text not null check (control in ('pause', 'quota', 'concurrency')),
    amount   integer check (amount > 0),            -- calls of the quota, or how many at once
    period_s double precision check (period_s > 0), -- of the quota
    until    timestamptz,                           -- null: until somebody takes it back
    actor    text not null,
    reason   text not null,
    at       timestamptz not null default clock_timestamp(),
    primary key (target, name, control),
    check ((control = 'pause') = (amount is null)),
    check ((control = 'quota') = (period_s is not null))
);

-- The history of the lanes, among what else people did. Daemons also read from it how far they have heard.
create index audit_lanes on acklast.audit (id) where action like 'lanes.%';

-- How a lane stands in one daemon: written every second or so, where something has changed, and true as long as
-- the session's lease is. Nothing here is written or read for a job.
create table acklast.lane_reports (
    session     bigint not null,                    -- workers.id
    lane        text collate "C" not null,
    heard       bigint not null,                    -- audit.id of the last change that it follows
    concurrency integer not null,                   -- handlers that may run at once
    in_flight   integer not null,                   -- claimed and not yet recorded
    held        integer not null,                   -- deliveries that it holds and has not started
    started     integer not null,                   -- starts within window_s
    window_s    double precision not null,
    permits     integer,                            -- of its budget, held by this daemon
    busy        integer,                            -- those of them that are out or cooling
    rate_per_s  double precision,                   -- what this daemon may start of its budget, as things are
    state       text not null,
    until       timestamptz,                        -- when the state is over, where that is known
    at          timestamptz not null default clock_timestamp(),
    primary key (session, lane)
) with (fillfactor = 50);
