-- Who runs what, and a daemon that somebody asks from afar to drain.
alter table acklast.workers
    add column release        text,                 -- acklast's own version; null: it is older than this column
    add column draining_at    timestamptz,          -- since when it drains, by its own word
    add column drain_asked_at timestamptz,          -- it is to drain, whoever manages it
    add column drain_by       text,                 -- who asks; the audit has more
    add column drain_reason   text,
    add constraint workers_drain check ((drain_asked_at is null) = (drain_by is null)
                                        and (drain_asked_at is null) = (drain_reason is null));
