-- For roles that may not read what is in a message: how large that of a letter is, and nothing else of it.
create function acklast.letter_bytes(letter bigint) returns integer
language sql stable parallel safe security definer set search_path = pg_catalog, pg_temp
as $$
    select octet_length(payload) from acklast.dead_letters where id = letter
$$;

-- Who may add to the audit may say any name in it, and not whose login that was. Nobody takes an entry back: so
-- none is of a shape that no listing could read.
create function acklast.audit_says_who() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp
as $$
begin
    new.detail := case jsonb_typeof(new.detail) when 'object' then new.detail
                       else jsonb_build_object('said', new.detail) end
                  || jsonb_build_object('role', session_user);
    return new;
end
$$;

create trigger audit_says_who before insert on acklast.audit
    for each row execute function acklast.audit_says_who();
