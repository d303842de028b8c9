-- Which deliveries were acknowledged, written lazily: one row for up to thousands of them.
--
-- A claim's ticket is one of a session's consecutive numbers, so the claims whose deliveries were acknowledged
-- are a few ranges. Noting each in its job's row would be one more version of every row, at nearly the cost of
-- its completion. jobs.settled_at is left to the few that are known by their key alone: a delivery of a job that
-- was already decided. Rows go with their session, when no job can name it any more.
create table acklast.settlements (
    session bigint not null,                        -- workers.id
    at      timestamptz not null,
    tickets int8multirange not null                 -- jobs.ticket of this session
);

create index settlements_session on acklast.settlements (session, at);
