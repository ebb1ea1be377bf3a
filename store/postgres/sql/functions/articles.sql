-- The functions of the articles, by their own names, but exact: fractions are
-- kept, a refusal costs nothing, the first use is as safe as the hundredth, at
-- any isolation level. They are made in a schema that the user names, in the place of schema
-- articles, only where nothing of somebody else's has one of these names, whatever its kind
-- and arguments. What is ours says so in its comment and has our owner: another one could
-- change it later.
--
-- One statement, so that a client which goes on after an error replaces none.
do $guard$ declare
    place constant text := 'articles';
    obstacle constant text := case
        when place in ('headgate', 'headgate_internal') then 'it is for Headgate''s own functions'
        when not exists (select from pg_namespace n where n.nspname = place) then 'there is no such schema'
        when not has_schema_privilege(place, 'create') then format('role %s may not create functions there', current_user)
        else (
            select string_agg(distinct quote_ident(p.proname), ', ' order by quote_ident(p.proname)) || ' exists and is not ours'
            from pg_proc p join pg_namespace n on n.oid = p.pronamespace
            where n.nspname = place
              and p.proname in ('rate_limiting_request', 'rate_limiting_token_bucket_request', 'check_velocity', 'request_token')
              and (coalesce(obj_description(p.oid, 'pg_proc'), '') not like 'made by headgate%'
                or p.proowner <> (select o.proowner from pg_proc o where o.pronamespace = 'headgate'::regnamespace and o.proname = 'take')))
        end;
begin
if obstacle is not null then
    raise exception 'the articles'' functions cannot be made in schema "%": %', place, obstacle using errcode = '55000';
end if;
execute $articles$

-- rate_limiting_request takes one token: refill_per_sec of them come each
-- second, the bucket holds window_seconds' worth. It returns what is left, or
-- -1 when refused.
create or replace function articles.rate_limiting_request(rate_id text, refill_per_sec int default 2, window_seconds int default 60)
returns int language plpgsql volatile set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    res bigint[]; unit bigint; capacity bigint; step bigint := 1; drain bigint; rate bigint[];
begin
    if refill_per_sec is null or refill_per_sec <= 0 then
        perform headgate_internal.fail_N(format('refill_per_sec: is %s; it must be above 0', coalesce(refill_per_sec::text, 'null')));
    elsif window_seconds is null or window_seconds <= 0 then
        perform headgate_internal.fail_N(format('window_seconds: is %s; it must be above 0', coalesce(window_seconds::text, 'null')));
    elsif rate_id is null then
        perform headgate_internal.fail_N('rate_id: is null');
    elsif octet_length(rate_id) > 512 then
        perform headgate_internal.checked_key_N('key', rate_id);
    end if;
    -- For most rates headgate_internal.compile_amount_N need not look for a unit.
    if refill_per_sec <= 1000000 and window_seconds <= 9000000 then
        unit := lcm(1000, 1000000 / gcd(refill_per_sec, 1000000));
        drain := unit * refill_per_sec / 1000000;
        capacity := unit * refill_per_sec * window_seconds;
    end if;
    if capacity is null or capacity > 9007199254740991 then
        rate := headgate_internal.compile_amount_N(true, refill_per_sec, 1000000, refill_per_sec::numeric * window_seconds);
        unit := rate[{rate.unit}]; capacity := rate[{rate.capacity}]; step := rate[{rate.step}]; drain := rate[{rate.drain}];
    end if;
    res := headgate_internal.take_one_N('rate_limiting_request', rate_id, 0, unit, capacity, step, drain, 0, unit, 0);
    if res[{out.granted}] = 0 then
        return -1;
    end if;
    return least((capacity - res[{out.used}]) / unit, 2147483647);
end $$;
comment on function articles.rate_limiting_request(text, int, int) is 'made by headgate: takes one token; -1: there was none';

create or replace function articles.rate_limiting_token_bucket_request(rate_id text, refill_per_sec int default 2, window_seconds int default 60)
returns int language sql volatile set search_path = pg_catalog, pg_temp as $$ select articles.rate_limiting_request(rate_id, refill_per_sec, window_seconds) $$;
comment on function articles.rate_limiting_token_bucket_request(text, int, int) is 'made by headgate: is rate_limiting_request';

-- check_velocity asks whether a key of a zone may pass, and records the
-- attempt, allowed or blocked, under its transaction id.
create or replace function articles.check_velocity(zone int, bucket_key text)
returns table (blocked int, transaction_id bigint, zone_id int, key text, rate int, "window" bigint)
language plpgsql volatile security definer set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    z headgate.zones; c headgate.compiled; res bigint[];
begin
    select * into z from headgate.zones where id = zone;
    if not found then
        perform headgate_internal.fail_N(format('zone: %s is not in headgate.zones; insert its id, rate and window_seconds', coalesce(zone::text, 'null')));
    elsif bucket_key is null then
        perform headgate_internal.fail_N('bucket_key: is null');
    end if;
    c.params := array[{limit: kind => 3, unit => 1000, capacity => z.rate::bigint * 1000, step => z.window_seconds * 1000000,
        history => greatest(1, z.history_days * 86400000000)}];
    res := headgate_internal.ask_N(1, 'zone.' || z.id, c, bucket_key, 1000, 0, '');
    return query select 1 - res[{out.granted}]::int, res[{out.entry}], z.id, bucket_key, z.rate, z.window_seconds;
end $$;
comment on function articles.check_velocity(int, text) is 'made by headgate: asks whether a key of a zone may pass, and records that';

-- request_token takes a token from a bucket of headgate.buckets, which is full again
-- at the first request after its refill_seconds. One row if there is one: remaining,
-- and at, the time of the decision; no row if there is none. So the number of rows,
-- which a client may take for the number of rows affected, is that of the tokens.
create or replace function articles.request_token(id text) returns table (remaining bigint, at timestamptz)
language plpgsql volatile security definer rows 1 set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    b headgate.buckets; res bigint[];
begin
    select * into b from headgate.buckets s where s.id = request_token.id;
    if b.id is null then
        perform headgate_internal.fail_N(format('bucket: %s is not in headgate.buckets; insert its id, capacity and refill_seconds', coalesce('"' || left(id, 60) || '"', 'null')));
    elsif octet_length(b.id) > 512 then
        perform headgate_internal.checked_key_N('key', b.id);
    end if;
    res := headgate_internal.take_one_N(coalesce(headgate_internal.bucket_name_N(b.id), 'request_token'), b.id, 0, 1000, b.capacity::bigint * 1000,
        (b.refill_seconds * 1000000)::bigint, 9007199254740991, 0, 1000, 0);
    if res[{out.granted}] = 1 then
        remaining := greatest(0, b.capacity::bigint * 1000 - res[{out.used}]) / 1000;
        at := headgate_internal.instant_N(res[{out.clock}]);
        return next;
    end if;
end $$;
comment on function articles.request_token(text) is 'made by headgate: takes a token from a bucket; no row: there was none';

$articles$;
end $guard$;
