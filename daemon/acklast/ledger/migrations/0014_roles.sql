-- For roles that may not read what is in a message: how large that of a letter is, and nothing else of it.
create function acklast.letter_bytes(letter bigint) returns integer
language sql stable parallel safe security definer set search_path = pg_catalog, pg_temp
as $$
    select octet_length(payload) from acklast.dead_letters where id = letter
$$;
