-- The messages of open jobs, in lanes whose custody is the ledger's: what the broker loses can be sent again.
--
-- A row comes with its job's first claim, or with the manifest that promises the job, and goes with the job's
-- end, each in the same commit: the table is as large as what is open.
create table acklast.custody (
    lane    text collate "C" not null,
    key     text collate "C" not null,
    header  bytea not null,                         -- the content header of a carrier, as AMQP writes it: JSON
                                                    -- would not keep a header's type, nor what is not text
    body    bytea not null,
    kept_at timestamptz not null default clock_timestamp(),
    sends   integer not null default 0,             -- how often it was sent again
    sent_at timestamptz,
    primary key (lane, key)
);
