-- The audit is only ever added to, whatever a role may do with its tables: what has been put down stays as it is.
-- The table's owner could take these triggers away, and nobody else; a daemon needs no owner's rights.
create function acklast.audit_stays() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp
as $$
begin
    raise exception using errcode = 'insufficient_privilege', message = 'acklast: the audit is only ever added to',
        hint = 'Put down another entry that says what was wrong.';
end
$$;

create trigger audit_stays before update or delete or truncate on acklast.audit
    for each statement execute function acklast.audit_stays();

-- A page of it, by whatever it is asked for, is read from one of these.
create index audit_at on acklast.audit (at);
create index audit_actor on acklast.audit (actor, id);
create index audit_action on acklast.audit (action, id);
create index audit_lane on acklast.audit (lane, id) where lane is not null;
create index audit_run on acklast.audit (run, id) where run is not null;
create index audit_key on acklast.audit (key, id) where key is not null;
