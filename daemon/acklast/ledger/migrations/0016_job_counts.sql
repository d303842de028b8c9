-- Jobs by lane, priority, state and run: how many there are of each, without counting them.

alter table acklast.jobs add column priority smallint;      -- as the message has it. Null: it has none, or an
                                                            -- older program took it in

-- What came and went. The counts are the sums, and true in every snapshot.
--
-- No index of acklast.jobs may name a state, and a counter of each group would be one row that every flush waits
-- for. So each statement that changes jobs adds rows of its own, whoever issues it, and now and then the rows of a
-- group are replaced by their sum. There is no index: nearly all of it is read at each reading. And no bigint:
-- to sum those takes Postgres several times as long.
create table acklast.job_counts (
    lane       text collate "C" not null,
    run        text collate "C" not null,           -- '' for none
    priority   text not null,                       -- 'high', 'normal', 'low'; '' where it is not told
    due        timestamptz,                         -- from when on its startable jobs may start, rounded up
    minute     timestamptz,                         -- in which it started, completed and failed so many
    queued     integer not null default 0,           -- more of them, or fewer
    waiting    integer not null default 0,
    claimed    integer not null default 0,
    unresolved integer not null default 0,
    dead       integer not null default 0,
    done       integer not null default 0,
    cancelled  integer not null default 0,
    startable  integer not null default 0,           -- that have not started: queued and waiting
    started    integer not null default 0,
    completed  integer not null default 0,
    failed     integer not null default 0,           -- dead or unresolved
    summed     boolean not null default false
-- Vacuum locks a table to give its end back to the disk, and a flush would run into that.
) with (vacuum_truncate = off, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0.1);

-- What follows is written by who sums alone, and has its indexes for that.

-- When jobs may start that have not: a reading wants the oldest, and there may be as many times as jobs.
create table acklast.job_dues (
    due       timestamptz not null,
    lane      text collate "C" not null,
    priority  text not null,
    startable bigint not null,
    primary key (due, lane, priority)
) with (fillfactor = 70);

create index job_dues_none on acklast.job_dues (due) where startable = 0;

-- Jobs for which nothing is left to do, by run: what is read each time stays as small as what is open, however
-- many runs there have been.
create table acklast.job_counts_over (
    run       text collate "C" not null,
    lane      text collate "C" not null,
    priority  text not null,
    done      bigint not null,
    cancelled bigint not null,
    primary key (run, lane, priority)
) with (fillfactor = 70);

create index job_counts_over_none on acklast.job_counts_over (run) where done = 0 and cancelled = 0;

-- Since when the jobs of before this migration are in the counts too; no row: not yet.
create table acklast.job_counting (
    complete_at timestamptz not null default clock_timestamp()
);
create unique index job_counting_once on acklast.job_counting ((true));

-- The class of a priority. A message without one is as one with 4.
create function acklast.job_priority(priority smallint) returns text
language sql immutable parallel safe
as $$
    select case when priority is null or priority = 4 then 'normal' when priority > 4 then 'high' else 'low' end
$$;

-- From when on a job that has not started may start, rounded up to 15 seconds; null where it has.
create function acklast.job_due(state text, available_at timestamptz, recorded_at timestamptz,
                                enqueued_at timestamptz) returns timestamptz
language sql stable parallel safe
as $$
    select case when state in ('queued', 'waiting') then
        date_bin('15 s', coalesce(available_at, recorded_at, enqueued_at) + interval '14.999999 s',
                 '2000-01-01 00:00:00+00') end
$$;

-- SECURITY DEFINER: who may change a job needs no right on the counts. Each groups by columns first and makes one
-- row of several states afterwards: that is what a flush pays for, in microseconds for each job.
create function acklast.jobs_came() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    insert into acklast.job_counts (lane, run, priority, due, minute, queued, waiting, claimed, unresolved, dead,
                                    done, cancelled, startable, started, completed, failed)
    select lane, coalesce(run, ''), acklast.job_priority(priority), due, date_trunc('minute', clock_timestamp()),
           case state when 'queued' then n else 0 end, case state when 'waiting' then n else 0 end,
           case state when 'claimed' then n else 0 end, case state when 'unresolved' then n else 0 end,
           case state when 'dead' then n else 0 end, case state when 'done' then n else 0 end,
           case state when 'cancelled' then n else 0 end,
           case when state in ('queued', 'waiting') then n else 0 end,
           case state when 'claimed' then n else 0 end, 0, 0
    from (select lane, run, priority, state,
                 acklast.job_due(state, available_at, recorded_at, enqueued_at) as due, count(*) as n
          from came group by 1, 2, 3, 4, 5) as g;
    return null;
end
$$;

create function acklast.jobs_went() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    insert into acklast.job_counts (lane, run, priority, due, queued, waiting, claimed, unresolved, dead, done,
                                    cancelled, startable)
    select lane, coalesce(run, ''), acklast.job_priority(priority), due,
           case state when 'queued' then -n else 0 end, case state when 'waiting' then -n else 0 end,
           case state when 'claimed' then -n else 0 end, case state when 'unresolved' then -n else 0 end,
           case state when 'dead' then -n else 0 end, case state when 'done' then -n else 0 end,
           case state when 'cancelled' then -n else 0 end,
           case when state in ('queued', 'waiting') then -n else 0 end
    from (select lane, run, priority, state,
                 acklast.job_due(state, available_at, recorded_at, enqueued_at) as due, count(*) as n
          from went group by 1, 2, 3, 4, 5) as g;
    return null;
end
$$;

-- What leaves a group and comes to it again in one statement changes nothing, and has no row.
create function acklast.jobs_changed() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    insert into acklast.job_counts (lane, run, priority, due, minute, queued, waiting, claimed, unresolved, dead,
                                    done, cancelled, startable, started, completed, failed)
    select lane, coalesce(run, ''), acklast.job_priority(priority), due, date_trunc('minute', clock_timestamp()),
           queued, waiting, claimed, unresolved, dead, done, cancelled, queued + waiting, started,
           greatest(0, done), greatest(0, dead) + greatest(0, unresolved)
    from (
        select lane, run, priority, due,
               coalesce(sum(n) filter (where state = 'queued'), 0) as queued,
               coalesce(sum(n) filter (where state = 'waiting'), 0) as waiting,
               coalesce(sum(n) filter (where state = 'claimed'), 0) as claimed,
               coalesce(sum(n) filter (where state = 'unresolved'), 0) as unresolved,
               coalesce(sum(n) filter (where state = 'dead'), 0) as dead,
               coalesce(sum(n) filter (where state = 'done'), 0) as done,
               coalesce(sum(n) filter (where state = 'cancelled'), 0) as cancelled,
               coalesce(sum(n) filter (where state = 'claimed' and n > 0), 0) as started
        from (
            select lane, run, priority, state,
                   acklast.job_due(state, available_at, recorded_at, enqueued_at) as due, -count(*) as n
            from went group by 1, 2, 3, 4, 5
            union all
            select lane, run, priority, state,
                   acklast.job_due(state, available_at, recorded_at, enqueued_at) as due, count(*)
            from came group by 1, 2, 3, 4, 5
        ) as c
        group by 1, 2, 3, 4
    ) as g
    where (queued, waiting, claimed, unresolved, dead, done, cancelled, started) <> (0, 0, 0, 0, 0, 0, 0, 0);
    return null;
end
$$;

create function acklast.jobs_emptied() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    truncate acklast.job_counts, acklast.job_dues, acklast.job_counts_over;
    return null;
end
$$;

create trigger jobs_came after insert on acklast.jobs
    referencing new table as came for each statement execute function acklast.jobs_came();
create trigger jobs_changed after update on acklast.jobs
    referencing old table as went new table as came
    for each statement execute function acklast.jobs_changed();
create trigger jobs_went after delete on acklast.jobs
    referencing old table as went for each statement execute function acklast.jobs_went();
create trigger jobs_emptied after truncate on acklast.jobs
    for each statement execute function acklast.jobs_emptied();

-- The jobs that are there already are counted afterwards, by 'acklast ledger migrate' or a daemon, in one snapshot
-- and without a lock: all of them, less what these triggers have counted by then. No statement comes in between
-- here: the table is locked.
insert into acklast.job_counting select where not exists (select from acklast.jobs);
