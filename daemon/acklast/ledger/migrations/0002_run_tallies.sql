-- What a run's account would lose when retention removes its jobs: counts by state, added to by the statement
-- that removes them, so that live jobs and tallies together are the same number at every moment.
--
-- By name and not by reference: a run that foreign publishers name by the header alone has no row in runs.
create table acklast.run_tallies (
    run    text collate "C" not null,
    state  text not null check (state in ('done', 'dead', 'cancelled')),
    jobs   bigint not null,
    claims bigint not null,                         -- attempts that they had started
    primary key (run, state)
) with (fillfactor = 50);
