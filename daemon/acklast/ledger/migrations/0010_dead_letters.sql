-- Dead letters by kind: how many there are of each, without counting them, and page by page.

-- Letters from before this migration are counted in small batches afterwards, by 'acklast ledger migrate' and by
-- the daemons; whatever is filed from now on is counted at once, by an older daemon too.
alter table acklast.dead_letters add column counted boolean not null default false;
alter table acklast.dead_letters alter column counted set default true;

create index dead_letters_uncounted on acklast.dead_letters (id) where not counted;
-- The pages of a lane, and those of a group, the newest first.
create index dead_letters_lane on acklast.dead_letters (lane, last_failure_at, id);
create index dead_letters_group
    on acklast.dead_letters (failure, lane, reason, coalesce(run, ''), last_failure_at, id);

-- What came and went, by group. The counts are the sums.
--
-- A counter for each group would be one row that every flush with a failure of it waits for, and a transaction of
-- a person at a prompt could hold it. So each statement adds a row of its own, and now and then the rows of a
-- group are replaced by their sum.
create table acklast.dead_counts (
    lane     text collate "C" not null,
    run      text collate "C" not null,             -- '' for none
    reason   text not null,
    failure  text not null,
    version  text not null,                         -- of the worker
    letters  bigint not null,                       -- more of them, or fewer
    arrived  bigint not null,                       -- messages that came to be letters, or came again as one
    first_at timestamptz,                           -- null where none arrived
    last_at  timestamptz,
    summed   boolean not null default false
);

create index dead_counts_new on acklast.dead_counts (lane) where not summed;

-- SECURITY DEFINER: who may file or remove a letter needs no right on the counts.
create function acklast.dead_letters_came() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    insert into acklast.dead_counts (lane, run, reason, failure, version, letters, arrived, first_at, last_at)
    select lane, coalesce(run, ''), reason, failure, version, count(*), count(*), min(last_failure_at),
           max(last_failure_at)
    from came where counted group by lane, coalesce(run, ''), reason, failure, version;
    return null;
end
$$;

create function acklast.dead_letters_went() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    insert into acklast.dead_counts (lane, run, reason, failure, version, letters, arrived)
    select lane, coalesce(run, ''), reason, failure, version, -count(*), 0
    from went where counted group by lane, coalesce(run, ''), reason, failure, version;
    return null;
end
$$;

-- Nearly every update is of a payload that goes; of those nothing is counted. Retention joins by index alone,
-- and here is none.
create function acklast.dead_letters_changed() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_hashjoin = on
as $$
begin
    insert into acklast.dead_counts (lane, run, reason, failure, version, letters, arrived, first_at, last_at)
    select c.lane, coalesce(c.run, ''), c.reason, c.failure, c.version, sum(c.letters), sum(c.arrived),
           min(c.first_at), max(c.last_at)
    from went o join came n on n.id = o.id
         cross join lateral (
             select o.lane, o.run, o.reason, o.failure, o.version, -1, 0, null::timestamptz, null::timestamptz
             where o.counted
             union all
             select n.lane, n.run, n.reason, n.failure, n.version, 1, (n.seen > o.seen)::int,
                    case when n.digest is null then n.last_failure_at else n.first_failure_at end,
                    n.last_failure_at
             where n.counted
         ) as c (lane, run, reason, failure, version, letters, arrived, first_at, last_at)
    where (o.counted, o.lane, o.run, o.reason, o.failure, o.version, o.seen)
          is distinct from (n.counted, n.lane, n.run, n.reason, n.failure, n.version, n.seen)
    group by c.lane, coalesce(c.run, ''), c.reason, c.failure, c.version;
    return null;
end
$$;

create trigger dead_letters_came after insert on acklast.dead_letters
    referencing new table as came for each statement execute function acklast.dead_letters_came();
create trigger dead_letters_went after delete on acklast.dead_letters
    referencing old table as went for each statement execute function acklast.dead_letters_went();
create trigger dead_letters_changed after update on acklast.dead_letters
    referencing old table as went new table as came
    for each statement execute function acklast.dead_letters_changed();

-- What people have said of a letter, and which they removed, is in the audit, by the letter's id.
create index audit_letters on acklast.audit ((detail->>'letter'), id) where action like 'dead.%';
