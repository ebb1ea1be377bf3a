-- What people call to be charged once, to settle, to start later, and to hold.

-- headgate.micros_N is an interval in microseconds, from 0 to 3660 days.
create or replace function headgate.micros_N(field text, d interval) returns bigint language plpgsql immutable as $$
declare
    us numeric := extract(epoch from d)::numeric * 1000000;
begin
    if d is null then
        perform headgate.fail_N(field || ': is null');
    elsif us < 0 or us > 3660 * 86400000000 then
        perform headgate.fail_N(format('%s: %s is not from 0 to 3660 days', field, d));
    end if;
    return us;
end $$;

-- headgate.checked_id_N refuses ids that none can have.
create or replace function headgate.checked_id_N(id text) returns text language plpgsql immutable as $$
begin
    if coalesce(id, '') = '' then
        perform headgate.fail_N('id: is missing');
    elsif octet_length(id) > 255 then
        perform headgate.fail_N(format('id: is %s bytes long, at most 255 are allowed', octet_length(id)));
    end if;
    return id;
end $$;

-- headgate.take_once is headgate.take for a request with an id: asked again with the
-- same charge within its life, it returns the first admission, replayed, and charges
-- nothing. What was refused or cancelled is decided again; with another charge it is
-- an error.
create or replace function headgate.take_once(id text, rule text, key text, cost numeric default 1, life interval default '1 hour')
returns table (allowed boolean, remaining bigint, retry_after interval, reset_after interval, limit_name text, at timestamptz, replayed boolean)
language plpgsql volatile set plan_cache_mode = 'force_generic_plan' set search_path = pg_catalog, pg_temp as $$
declare
    f record; res bigint[];
begin
    select * into f from headgate.find_N(rule);
    perform headgate.takeable_N(f.c);
    res := headgate.ask_N(1, f.name, f.c, key, headgate.credits_N('cost', cost, f.c, false), greatest(headgate.micros_N('life', life), 1), headgate.checked_id_N(id));
    if res[{out.start_at}] > res[{out.clock}] then
        perform headgate.fail_N(format('id: "%s" was reserved, and starts at %s', id, headgate.instant_N(res[{out.start_at}])));
    end if;
    return query select g.*, res[{out.status}] = 2 from headgate.figures_N(res, f.name, f.c) g;
end $$;

-- headgate.settle makes actual the cost of a charge that was admitted under an id;
-- 0 is nothing at all, and final. It returns by how much the charge was corrected: what is
-- given back is above 0, what is charged in addition below. Settled at the same cost
-- again, it returns 0; at another it is an error, and so is an id that is not known.
create or replace function headgate.settle(id text, rule text, key text, actual numeric, out corrected numeric)
language plpgsql volatile set plan_cache_mode = 'force_generic_plan' set search_path = pg_catalog, pg_temp as $$
declare
    f record; res bigint[];
begin
    select * into f from headgate.find_N(rule);
    res := headgate.ask_N(4, f.name, f.c, key, headgate.credits_N('actual', actual, f.c, true), 0, headgate.checked_id_N(id));
    corrected := trim_scale(round(res[{out.granted}]::numeric / (f.c).params[{limit.unit}], 9));
end $$;

-- headgate.cancel takes back a charge that was admitted under an id, and returns how
-- much of it. Unlike one that was settled at 0, its id can be admitted again, also by
-- an attempt that is still under way. Cancelled again it returns 0.
create or replace function headgate.cancel(id text, rule text, key text, out returned numeric)
language plpgsql volatile set plan_cache_mode = 'force_generic_plan' set search_path = pg_catalog, pg_temp as $$
declare
    f record; res bigint[];
begin
    select * into f from headgate.find_N(rule);
    res := headgate.ask_N(4, f.name, f.c, key, -2, 0, headgate.checked_id_N(id));
    returned := trim_scale(round(res[{out.granted}]::numeric / (f.c).params[{limit.unit}], 9));
end $$;

-- headgate.reserve takes cost now for a start at most wait from now: with
-- token-bucket, leaky-bucket and gcra each reservation has a start of its own, first
-- come first served; under other limits it starts at once or is not made. Sleep for
-- delay, then begin. With an id it can be asked again and settled.
create or replace function headgate.reserve(rule text, key text, cost numeric, wait interval, id text default null, life interval default '1 hour')
returns table (allowed boolean, start_at timestamptz, delay interval, retry_after interval, limit_name text, replayed boolean)
language plpgsql volatile set plan_cache_mode = 'force_generic_plan' set search_path = pg_catalog, pg_temp as $$
declare
    f record; res bigint[];
    us bigint := headgate.micros_N('wait', wait);
    capacity bigint; step bigint; drain bigint;
    how int := 0; ceiling bigint := 0;
    c headgate.compiled;
begin
    select * into f from headgate.find_N(rule);
    perform headgate.takeable_N(f.c);
    c := f.c;
    if us > 0 then -- who waits is not blocked for it
        c := row(c.canonical, c.params[{limit.kind}:{limit.drain}] || 0::bigint || c.params[{limit.history}], c.calendar, c.zone);
    end if;
    if us > 0 and (f.c).canonical ~ '^(token-bucket|leaky-bucket|gcra) ' then
        capacity := (f.c).params[{limit.capacity}]; step := (f.c).params[{limit.step}]; drain := (f.c).params[{limit.drain}];
        how := 2;
        ceiling := case when us / step > (9007199254740991 - capacity) / drain then 9007199254740991 else capacity + us / step * drain end;
    end if;
    res := headgate.ask_N(1, f.name, c, key, headgate.credits_N('cost', cost, c, false),
        case when id is null then 0 else greatest(headgate.micros_N('life', life), 1) end,
        case when id is null then '' else headgate.checked_id_N(id) end, how, ceiling);
    allowed := res[{out.granted}] = 1;
    if allowed then
        start_at := headgate.instant_N(case when res[{out.start_at}] > 0 then res[{out.start_at}] else res[{out.clock}] end);
        delay := greatest(0, res[{out.start_at}] - res[{out.clock}]) * interval '1 microsecond';
    end if;
    retry_after := headgate.retry_after_N(res);
    limit_name := f.name;
    replayed := res[{out.status}] = 2;
    return next;
end $$;

-- headgate.acquire holds cost of a concurrency limit until headgate.release, or until
-- nobody has renewed it for the limit's ttl. lease is its number, for renew and
-- release; retry_after is until one ends if nobody renews it.
create or replace function headgate.acquire(rule text, key text, cost numeric default 1)
returns table (acquired boolean, lease bigint, ttl interval, retry_after interval, limit_name text)
language plpgsql volatile set plan_cache_mode = 'force_generic_plan' set search_path = pg_catalog, pg_temp as $$
declare
    f record; res bigint[];
begin
    select * into f from headgate.held_N(rule);
    res := headgate.ask_N(1, f.name, f.c, key, headgate.credits_N('cost', cost, f.c, false), 0, '');
    acquired := res[{out.granted}] = 1;
    lease := case when acquired then res[{out.entry}] end;
    ttl := (f.c).params[{limit.step}] * interval '1 microsecond';
    retry_after := headgate.retry_after_N(res);
    limit_name := f.name;
    return next;
end $$;

-- headgate.renew lets a lease last for its ttl from now. It returns false if the lease
-- is lost: others may have it.
create or replace function headgate.renew(rule text, key text, lease bigint, out done boolean) language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
    f record;
begin
    select * into f from headgate.held_N(rule);
    done := (headgate.ask_N(7, f.name, f.c, key, 1, 0, '', entry => headgate.checked_lease_N(lease)))[{out.granted}] = 1;
end $$;

-- headgate.release ends a lease. It returns false if it was lost or released before.
create or replace function headgate.release(rule text, key text, lease bigint, out done boolean) language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
    f record;
begin
    select * into f from headgate.held_N(rule);
    done := (headgate.ask_N(3, f.name, f.c, key, 9007199254740991, 0, '', entry => headgate.checked_lease_N(lease)))[{out.granted}] > 0;
end $$;

-- headgate.held_N is headgate.find_N for limits whose charges are held.
create or replace function headgate.held_N(rule text, out name text, out c headgate.compiled) language plpgsql stable as $$
declare
    f record;
begin
    select * into f from headgate.find_N(rule);
    name := f.name; c := f.c;
    if c.canonical not like 'concurrency %' then
        perform headgate.fail_N(format('limit: %s is taken, not acquired: only concurrency limits are', c.canonical));
    end if;
end $$;

create or replace function headgate.checked_lease_N(lease bigint) returns bigint language plpgsql immutable as $$
begin
    if lease is null or lease < 1 then
        perform headgate.fail_N('lease: was never acquired');
    end if;
    return lease;
end $$;
