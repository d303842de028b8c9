-- Unresolved jobs: somebody asks whether the effect has happened, and a daemon that runs the lane finds out.

-- A question, who asked it, and what was found. It goes with its job.
create table acklast.reconciliations (
    id       bigint generated always as identity primary key,
    letter   bigint not null,                       -- dead_letters.id
    lane     text collate "C" not null,
    key      text collate "C" not null,
    fence    bigint not null,                       -- of its job: once that has moved on the answer is too late
    actor    text not null,
    login    text not null,
    reason   text not null,                         -- why it is asked
    asked_at timestamptz not null default clock_timestamp(),
    session  bigint,                                -- workers.id of the daemon that has taken it
    found    text check (found in ('happened', 'not_happened', 'unknown')),
    code     text,                                  -- why nobody can tell; more is in the attempt of this fence
    effect   text check (effect in ('done', 'retry', 'dead', 'unresolved', 'superseded')),
                                                    -- what became of the job; superseded: not by this
    done_at  timestamptz,
    constraint reconciliations_done check ((done_at is null) = (effect is null))
) with (fillfactor = 70);

-- One open question for each job, however many people ask.
create unique index reconciliations_open on acklast.reconciliations (lane, key) where done_at is null;
-- The next one of a lane.
create index reconciliations_next on acklast.reconciliations (lane, id) where done_at is null and found is null;
-- Those that did not happen wait for a redrive.
create index reconciliations_found on acklast.reconciliations (lane, id)
    where done_at is null and found is not null;
create index reconciliations_job on acklast.reconciliations (lane, key, id);
