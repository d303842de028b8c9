-- What a run is for and until when, and which runs were cancelled.

alter table acklast.runs
    -- Null: no manifest, and known by its jobs' headers; the row only says what the run is about.
    alter column manifest drop not null,
    alter column manifest drop default,
    add column owner  text,
    add column labels jsonb not null default '{}';      -- texts by name

-- The list, page by page, the newest first.
create index runs_created on acklast.runs (created_at, run);

-- Runs of which nothing is to start any more. A table of its own, and by name: the run may have no manifest, and
-- every claim of a job with a run looks here, so it must be small. Rows stay: a message may come years later.
create table acklast.cancelled_runs (
    run    text collate "C" primary key,
    at     timestamptz not null default clock_timestamp(),
    actor  text not null,
    login  text not null,
    reason text not null
);

-- The history of a run, among what else people did.
create index audit_runs on acklast.audit (run, id) where action like 'runs.%';
