-- Who holds how many permits of a budget. Starts never come here: a daemon starts by what it holds.
--
-- A budget's row and the rows of its holders change together, in one statement that is guarded by the budget's
-- version: whoever worked on what has changed meanwhile writes nothing and looks again. So the permits that are
-- held never exceed the quota, whatever the daemons compute, and a statement that arrives late does nothing.

alter table acklast.budgets
    add column version bigint not null default 0,
    -- A budget's calls in flight are shared out in the same way, as a budget that cools in no time.
    drop constraint budgets_period_s_check,
    add constraint budgets_period_s_check check (period_s >= 0);

create table acklast.permits (
    budget     text collate "C" not null references acklast.budgets (name) on delete cascade,
    session    bigint not null,                     -- workers.id; a session that has ended leaves its row until
                                                    -- its permits are cool
    held       integer not null check (held >= 0),
    needs      integer not null check (needs >= 0), -- what it could use
    since      timestamptz,                         -- needs some and holds none since then
    fresh      boolean not null default false,      -- was given its first ones and has not used any yet
    quota      integer not null,                    -- what its own configuration says: the lowest counts
    period_s   double precision not null,           -- and the longest
    hot_s      double precision not null,           -- how long after its end its permits may not be used
    updated_at timestamptz not null default clock_timestamp(),
    primary key (budget, session)
) with (fillfactor = 50);
