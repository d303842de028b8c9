-- Redrives: dead letters are tried again, a few at first and the others only once these have gone well.

-- The table of the first version was never written to.
drop table acklast.redrives;

alter table acklast.dead_letters
    add column held      boolean default false,     -- its job is unresolved: a person or a reconcile decides
    add column closed_at timestamptz,                       -- null: it waits for somebody
    add column closed_as text check (closed_as in ('redriven', 'done')),    -- what became of its job then
    add constraint dead_letters_closed check ((closed_at is null) = (closed_as is null));

update acklast.dead_letters d set held = true
from acklast.jobs j
where d.fence is not null and j.lane = d.lane and j.key = d.key and j.fence = d.fence and j.state = 'unresolved';

-- A daemon of before this migration that is still at work does not say it. Its unresolved jobs would wait where
-- nobody looks: so it is found out for each of its letters, once its statement has done all of its changes.
alter table acklast.dead_letters alter column held drop default;

create function acklast.dead_letters_held() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    update acklast.dead_letters d
    set held = exists (select from acklast.jobs j where j.lane = d.lane and j.key = d.key and j.fence = d.fence
                                                    and j.state = 'unresolved')
    where d.id = new.id;
    return null;
end
$$;

create trigger dead_letters_held after insert on acklast.dead_letters
    for each row when (new.held is null) execute function acklast.dead_letters_held();

-- Pages and groups are of those that wait for somebody. A letter that is closed stays as its job's history, and as
-- the message of a job that was redriven.
drop index acklast.dead_letters_lane;
drop index acklast.dead_letters_group;
create index dead_letters_lane on acklast.dead_letters (lane, last_failure_at, id) where closed_at is null;
create index dead_letters_group
    on acklast.dead_letters (failure, lane, reason, coalesce(run, ''), last_failure_at, id) where closed_at is null;
create index dead_letters_held
    on acklast.dead_letters (lane, last_failure_at, id) where held and closed_at is null;

create or replace function acklast.dead_letters_came() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    insert into acklast.dead_counts (lane, run, reason, failure, version, letters, arrived, first_at, last_at)
    select lane, coalesce(run, ''), reason, failure, version, count(*), count(*), min(last_failure_at),
           max(last_failure_at)
    from came where counted and closed_at is null group by lane, coalesce(run, ''), reason, failure, version;
    return null;
end
$$;

create or replace function acklast.dead_letters_went() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    insert into acklast.dead_counts (lane, run, reason, failure, version, letters, arrived)
    select lane, coalesce(run, ''), reason, failure, version, -count(*), 0
    from went where counted and closed_at is null group by lane, coalesce(run, ''), reason, failure, version;
    return null;
end
$$;

-- One that is opened again has come once more.
create or replace function acklast.dead_letters_changed() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_hashjoin = on
as $$
begin
    insert into acklast.dead_counts (lane, run, reason, failure, version, letters, arrived, first_at, last_at)
    select c.lane, coalesce(c.run, ''), c.reason, c.failure, c.version, sum(c.letters), sum(c.arrived),
           min(c.first_at), max(c.last_at)
    from (select *, counted and closed_at is null as counts from went) o
         join (select *, counted and closed_at is null as counts from came) n on n.id = o.id
         cross join lateral (
             select o.lane, o.run, o.reason, o.failure, o.version, -1, 0, null::timestamptz, null::timestamptz
             where o.counts
             union all
             select n.lane, n.run, n.reason, n.failure, n.version, 1, (n.seen > o.seen)::int,
                    case when n.digest is null then n.last_failure_at else n.first_failure_at end,
                    n.last_failure_at
             where n.counts
         ) as c (lane, run, reason, failure, version, letters, arrived, first_at, last_at)
    where (o.counts, o.lane, o.run, o.reason, o.failure, o.version, o.seen)
          is distinct from (n.counts, n.lane, n.run, n.reason, n.failure, n.version, n.seen)
    group by c.lane, coalesce(c.run, ''), c.reason, c.failure, c.version;
    return null;
end
$$;

-- What was asked, how far it has come, and what came of it. Everything here is written by commands and by the one
-- daemon that works on it, never by the path of a job.
create table acklast.redrives (
    id         bigint generated always as identity primary key,
    lane       text collate "C" not null,
    status     text not null default 'planned' check (status in
                   ('planned', 'running', 'paused', 'asking', 'stopped', 'finished', 'cancelled')),
    decided    boolean not null default false,      -- a person has said of its jobs that they are to run again though
                                                    -- they may have had their effect: nobody is asked any more
    selection  jsonb not null,                      -- which letters were meant
    letters    bigint not null,                     -- as many were frozen
    excluded   jsonb not null default '{}',         -- letters that were meant and cannot be tried, by why
    actor      text not null,
    login      text not null,
    planned_at timestamptz not null default clock_timestamp(),
    -- From its start on:
    reason     text,                                -- why it was started
    steps      bigint[],                            -- letters that have been released at the end of each step
    rate_per_s double precision check (rate_per_s > 0),
    tolerate   double precision not null default 0 check (tolerate >= 0 and tolerate <= 1),
                                                    -- of all that are released, the part that may fail as before
    forced     text,                                -- why unchanged failures are tried all the same
    started_at timestamptz,
    step       integer not null default 0,          -- the step that it is in: steps[step + 1]
    step_at    timestamptz,                         -- since when
    session    bigint,                              -- workers.id of the daemon that works on it
    -- Letters by what became of them; changed together with them.
    released   bigint not null default 0,           -- including those that are settled
    refused    bigint not null default 0,
    done       bigint not null default 0,
    same       bigint not null default 0,           -- failed as before
    other      bigint not null default 0,           -- failed in another way, unresolved, cancelled, gone
    said       jsonb,                               -- what was found when it last stopped, asked or went on
    ended_at   timestamptz
) with (fillfactor = 50);

-- The set, in the order in which it is tried. What it failed of is kept here: the letter may go before the redrive.
create table acklast.redrive_letters (
    redrive     bigint not null references acklast.redrives (id) on delete cascade,
    position    bigint not null,                    -- from 1
    letter      bigint not null,                    -- dead_letters.id
    lane        text collate "C" not null,
    key         text collate "C" not null,
    run         text collate "C",
    fence       bigint,                             -- of its job when it was frozen; null: it had none of its own
    reason      text not null,
    failure     text not null,
    version     text not null,
    state       text not null default 'planned' check (state in ('planned', 'released', 'refused', 'settled')),
    refusal     text,                               -- why it was not tried
    at_fence    bigint,                             -- of its job when it was released
    released_at timestamptz,                        -- the job is queued since then, and may be published
    sent_at     timestamptz,                        -- the broker has confirmed its message
    settled_at  timestamptz,
    outcome     text check (outcome in ('done', 'dead', 'unresolved', 'cancelled', 'gone')),
    new_reason  text,
    new_failure text,
    new_version text,
    primary key (redrive, position)
) with (fillfactor = 70);

-- How often a job was tried again, and of what it failed then.
create index redrive_letters_job on acklast.redrive_letters (lane, key);
create index redrive_letters_out on acklast.redrive_letters (redrive, position) where state = 'released';
