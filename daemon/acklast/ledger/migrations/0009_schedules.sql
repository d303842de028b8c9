-- Schedules fire runs: how far each is, whether it is paused, and each firing with the place that it has reached.
--
-- What a schedule is stands in the configuration; the columns of before that would say it here stay unused.

alter table acklast.schedules
    alter column payload drop not null,
    add column decided_until timestamptz,            -- up to then it is decided what fires
    add column paused_at     timestamptz,
    add column paused_by     text,
    add column paused_reason text;

-- One row per firing, and one for each stretch of firings that were skipped. The run is what makes it one
-- firing: two schedulers that see the same time come to the same run, and the second finds it here.
create table acklast.firings (
    id           bigint generated always as identity primary key,
    schedule     text collate "C" not null,
    scheduled_at timestamptz not null,               -- of what was skipped the last
    run          text collate "C",                   -- null: skipped
    state        text not null check (state in ('open', 'done', 'failed', 'skipped')),
    cause        text not null check (cause in ('time', 'late', 'operator')),
    actor        text,                               -- where an operator fired it
    skipped      bigint,                             -- how many were
    skipped_from timestamptz,
    fence        bigint not null default 0,          -- only grows: every claim adds 1
    lease_until  timestamptz,                        -- until then the firing is its claimer's
    worker       text,
    due_at       timestamptz not null default clock_timestamp(),    -- when to try it, and later again
    tries        integer not null default 0,         -- that failed
    error        text,                               -- of the last of them
    cursor       text,                               -- the last row whose job is promised
    pages        integer not null default 0,
    rows         bigint not null default 0,          -- read: the sum of the four below
    promised     bigint not null default 0,          -- jobs that were new
    known        bigint not null default 0,          -- whose job was there already
    conflicts    bigint not null default 0,          -- whose key another content has
    bad          bigint not null default 0,          -- of which no job can be made
    bad_rows     jsonb not null default '[]',        -- the first of them, and why
    created_at   timestamptz not null default clock_timestamp(),
    started_at   timestamptz,
    finished_at  timestamptz
) with (fillfactor = 70);

create unique index firings_run on acklast.firings (run) where run is not null;
create unique index firings_skipped on acklast.firings (schedule, scheduled_at) where run is null;
create index firings_schedule on acklast.firings (schedule, scheduled_at, id);
create index firings_open on acklast.firings (due_at) where state = 'open';

-- What is told of a firing.
create view acklast.firing_views as
select id, schedule, scheduled_at, run, state, cause, actor, skipped, skipped_from, rows, promised, known,
       conflicts, bad, bad_rows, pages, tries, error,
       case when state = 'open' and tries > 0 then due_at end as next_try_at,
       worker, created_at, started_at, finished_at
from acklast.firings;
