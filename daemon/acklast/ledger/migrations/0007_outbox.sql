-- The outbox: a job is promised in the caller's own transaction, from any language, and published once that has
-- committed.
--
-- No NOTIFY wakes the relay: it would make every commit of the application's queue behind one lock of the whole
-- server. The relay looks several times a second.

alter table acklast.outbox
    add column due_at timestamptz not null default clock_timestamp(),   -- when to publish it, and later again
    add column tries  integer not null default 0,                       -- publishes that were not confirmed
    add column error  text;                                             -- what the last of them came to

create index outbox_due on acklast.outbox (due_at, id);
-- In order per key: a row waits for the one before it.
create index outbox_key on acklast.outbox (lane, key, id);

-- Promises a job whose payload is not JSON; enqueue() below is the usual way.
--
-- SECURITY DEFINER: an application's role needs the right to call this and to use the schema, and nothing of the
-- tables.
create function acklast.enqueue_raw(
    lane           text,
    key            text,
    payload        bytea,
    content_type   text,
    type           text        default null,
    run            text        default null,
    deadline       timestamptz default null,
    not_before     timestamptz default null,
    priority       integer     default null,
    headers        jsonb       default '{}',
    routing_suffix text        default ''
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
    problem text;
    remedy  text;
    number  bigint;
begin
    case
        when lane is null or lane !~ '^[a-z0-9]([a-z0-9_-]{0,62}[a-z0-9])?$' then
            problem := format('lane %L is not valid', lane);
            remedy := 'Use 1 to 64 of a-z, 0-9, ''-'' and ''_'', starting and ending with a letter or digit.';
        when key is null or octet_length(convert_to(key, 'UTF8')) not between 1 and 255 or key ~ '[[:cntrl:]]' then
            problem := format('key %L is not valid', left(key, 100));
            remedy := 'Use 1 to 255 bytes of printable text that names the job, never the attempt.';
        when payload is null then
            problem := 'the payload is NULL';
            remedy := 'Give the job''s body.';
        when coalesce(content_type, '') = '' then
            problem := 'the content type is empty';
            remedy := 'Name it, such as application/octet-stream.';
        when priority not between 0 and 9 then
            problem := format('priority %s is not valid', priority);
            remedy := 'Use 0 to 9, or NULL.';
        when headers is null or jsonb_typeof(headers) <> 'object' then
            problem := 'the headers are no JSON object';
            remedy := 'Use an object of texts and numbers, or ''{}''.';
        else
            problem := null;
    end case;
    if problem is not null then
        raise exception using errcode = 'invalid_parameter_value', message = 'acklast: ' || problem, hint = remedy;
    end if;
    insert into acklast.outbox (lane, routing_suffix, key, type, content_type, run, priority, deadline,
                                not_before, headers, payload)
    values (lane, coalesce(routing_suffix, ''), key, type, content_type, run, priority, deadline, not_before,
            headers, payload)
    returning id into number;
    return number;
end
$$;

-- Promises a job: it is published when the transaction that calls this has committed, and never otherwise. The
-- same key again is the same job: with the same payload, type and content type it changes nothing.
create function acklast.enqueue(
    lane           text,
    key            text,
    payload        jsonb,
    type           text        default null,
    run            text        default null,
    deadline       timestamptz default null,
    not_before     timestamptz default null,
    priority       integer     default null,
    headers        jsonb       default '{}',
    routing_suffix text        default ''
) returns bigint
language sql volatile set search_path = pg_catalog, pg_temp
as $$
    select acklast.enqueue_raw(lane, key, convert_to(payload::text, 'UTF8'), 'application/json', type, run,
                               deadline, not_before, priority, headers, routing_suffix)
$$;
