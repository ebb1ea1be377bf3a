-- What people call to be charged once, to charge more, to settle, to start later, and to hold.

-- headgate_internal.micros_N is an interval in microseconds, from 0 to 3660 days.
create or replace function headgate_internal.micros_N(field text, d interval) returns bigint language plpgsql immutable as $$
declare
    us numeric := extract(epoch from d)::numeric * 1000000;
begin
    if d is null then
        perform headgate_internal.fail_N(field || ': is null');
    elsif us < 0 or us > 3660 * 86400000000 then
        perform headgate_internal.fail_N(format('%s: %s is not from 0 to 3660 days', field, d));
    end if;
    return us;
end $$;

-- headgate_internal.checked_id_N refuses ids that none can have.
create or replace function headgate_internal.checked_id_N(id text) returns text language plpgsql immutable as $$
begin
    if coalesce(id, '') = '' then
        perform headgate_internal.fail_N('id: is missing');
    elsif octet_length(id) > 255 then
        perform headgate_internal.fail_N(format('id: is %s bytes long, at most 255 are allowed', octet_length(id)));
    end if;
    return id;
end $$;

-- headgate_internal.started_N refuses what was admitted under an id for a start that lies ahead.
create or replace function headgate_internal.started_N(id text, res bigint[]) returns void language plpgsql stable as $$
begin
    for r in 0 .. cardinality(res) - {out.width} by {out.width} loop
        if res[r + {out.start_at}] > res[r + {out.clock}] then
            perform headgate_internal.fail_N(format('id: "%s" was reserved, and starts at %s', id, headgate_internal.instant_N(res[r + {out.start_at}])));
        end if;
    end loop;
end $$;

-- headgate_internal.replayed_N says whether all of a request was admitted before under its id.
create or replace function headgate_internal.replayed_N(res bigint[]) returns boolean language plpgsql immutable as $$
begin
    for r in 0 .. cardinality(res) - {out.width} by {out.width} loop
        if res[r + {out.status}] <> 2 then
            return false;
        end if;
    end loop;
    return true;
end $$;

-- headgate_internal.start_N is when a request may start that was admitted, and how long that is from now. A cell that is ahead
-- of a clock that was set back decides by its own time, and means its start by that.
create or replace function headgate_internal.start_N(res bigint[], cs headgate.compiled[], out start_at timestamptz, out delay interval) language plpgsql stable as $$
declare
    part bigint[]; decided bigint; starts bigint; start bigint := 0; wait bigint := 0;
begin
    for k in 1 .. cardinality(cs) loop
        part := res[(k - 1) * {out.width} + {out.granted} : k * {out.width}];
        if part[{out.granted}] <> 1 then
            return;
        end if;
        decided := headgate_internal.decided_at_N(part, cs[k]);
        starts := case when part[{out.start_at}] > 0 then part[{out.start_at}] else decided end;
        start := greatest(start, starts); wait := greatest(wait, starts - decided);
    end loop;
    start_at := headgate_internal.instant_N(start);
    delay := wait * interval '1 microsecond';
end $$;

-- headgate_internal.corrected_N is credits that were settled, or were charged under an id, as a cost.
create or replace function headgate_internal.corrected_N(credits bigint, c headgate.compiled) returns numeric language sql immutable as $$
    select trim_scale(round(credits::numeric / c.params[{limit.unit}], 9))
$$;

-- headgate.take_once is headgate.take for a request with an id: asked again with the
-- same charge within its life, it returns the first admission, replayed, and charges
-- nothing. What was refused or cancelled is decided again; with another charge it is
-- an error.
create or replace function headgate.take_once(id text, rule text, key text, cost numeric default 1, life interval default '1 hour')
returns table (allowed boolean, remaining bigint, retry_after interval, reset_after interval, limit_name text, at timestamptz, replayed boolean)
language plpgsql volatile security definer set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off set search_path = pg_catalog, pg_temp as $$
declare
    f record; res bigint[];
begin
    f := headgate_internal.charge_N(1, rule, key, cost, greatest(headgate_internal.micros_N('life', life), 1), headgate_internal.checked_id_N(id), 0, false);
    res := f.res;
    perform headgate_internal.started_N(id, res);
    return query select g.*, headgate_internal.replayed_N(res) from headgate_internal.figures_N(res, f.name, f.c) g;
end $$;

-- headgate_internal.fitting_N are the outcomes of a request that extends as those of one that takes: granted is 1 of what
-- fits, and not how much is charged.
create or replace function headgate_internal.fitting_N(res bigint[]) returns bigint[] language plpgsql immutable as $$
begin
    for r in 0 .. cardinality(res) - {out.width} by {out.width} loop
        res[r + {out.granted}] := case when res[r + {out.retry_at}] = 0 then 1 else 0 end;
    end loop;
    return res;
end $$;

-- headgate.extend charges more under an id, so that the charge is total in all, or nothing if that does not fit. One
-- row, as of headgate.take; charged is what is charged in all then, also if it was refused. A total that is
-- charged already is allowed, and charges nothing. The id is known for another life. It is an error if the id is not
-- known, or was settled or cancelled.
create or replace function headgate.extend(id text, rule text, key text, total numeric, life interval default '1 hour')
returns table (allowed boolean, remaining bigint, retry_after interval, reset_after interval, limit_name text, at timestamptz, charged numeric)
language plpgsql volatile security definer set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off set search_path = pg_catalog, pg_temp as $$
declare
    f record;
begin
    f := headgate_internal.charge_N(8, rule, key, total, greatest(headgate_internal.micros_N('life', life), 1), headgate_internal.checked_id_N(id), 0, false);
    return query select g.*, headgate_internal.corrected_N(f.res[{out.granted}], f.c) from headgate_internal.figures_N(headgate_internal.fitting_N(f.res), f.name, f.c) g;
end $$;

-- headgate.settle makes actual the cost of a charge that was admitted under an id;
-- 0 is nothing at all, and final. It returns by how much the charge was corrected: what is
-- given back is above 0, what is charged in addition below. Settled at the same cost
-- again, it returns 0; at another it is an error, and so is an id that is not known.
create or replace function headgate.settle(id text, rule text, key text, actual numeric, out corrected numeric)
language plpgsql volatile security definer set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off set search_path = pg_catalog, pg_temp as $$
declare
    f record; res bigint[];
begin
    f := headgate_internal.find_N(rule, key);
    res := headgate_internal.ask_N(4, f.name, f.c, key, headgate_internal.credits_N('actual', actual, f.c, true), 0, headgate_internal.checked_id_N(id));
    corrected := headgate_internal.corrected_N(res[{out.granted}], f.c);
end $$;

-- headgate.cancel takes back a charge that was admitted under an id, and returns how
-- much of it. Unlike one that was settled at 0, its id can be admitted again, also by
-- an attempt that is still under way. Cancelled again it returns 0.
create or replace function headgate.cancel(id text, rule text, key text, out returned numeric)
language plpgsql volatile security definer set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off set search_path = pg_catalog, pg_temp as $$
declare
    f record; res bigint[];
begin
    f := headgate_internal.find_N(rule, key);
    res := headgate_internal.ask_N(4, f.name, f.c, key, -2, 0, headgate_internal.checked_id_N(id));
    returned := headgate_internal.corrected_N(res[{out.granted}], f.c);
end $$;

-- headgate.debit charges work that is done already, under an id, whatever the level: called again, it charges nothing and
-- returns the first result, replayed. One row: charged, false if the key is blocked; used, what is in use then; is_over,
-- that it is more than the limit allows at once; the limit's name; at. What is above delays others until it has drained.
create or replace function headgate.debit(id text, rule text, key text, cost numeric, life interval default '1 hour')
returns table (charged boolean, used numeric, is_over boolean, limit_name text, at timestamptz, replayed boolean)
language plpgsql volatile security definer set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off set search_path = pg_catalog, pg_temp as $$
declare
    f record; c headgate.compiled; res bigint[];
begin
    f := headgate_internal.charge_N(1, rule, key, cost, greatest(headgate_internal.micros_N('life', life), 1), headgate_internal.checked_id_N(id), -1, false);
    res := f.res; c := f.c;
    perform headgate_internal.started_N(id, res);
    charged := res[{out.granted}] = 1;
    used := trim_scale(ceil(res[{out.used}]::numeric * 1000000 / c.params[{limit.unit}]) / 1000000);
    is_over := res[{out.used}] > c.params[{limit.capacity}];
    limit_name := f.name; at := headgate_internal.instant_N(headgate_internal.decided_at_N(res, c));
    replayed := headgate_internal.replayed_N(res);
    return next;
end $$;

-- headgate.reserve takes cost now for a start at most wait from now: with
-- token-bucket, leaky-bucket and gcra each reservation has a start of its own, first
-- come first served; under other limits it starts at once or is not made. Sleep for
-- delay, then begin. With an id it can be asked again and settled.
create or replace function headgate.reserve(rule text, key text, cost numeric, wait interval, id text default null, life interval default '1 hour')
returns table (allowed boolean, start_at timestamptz, delay interval, retry_after interval, limit_name text, replayed boolean)
language plpgsql volatile security definer set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off set search_path = pg_catalog, pg_temp as $$
declare
    f record; s record; res bigint[];
begin
    f := headgate_internal.charge_N(1, rule, key, cost, case when id is null then 0 else greatest(headgate_internal.micros_N('life', life), 1) end,
        case when id is null then '' else headgate_internal.checked_id_N(id) end, headgate_internal.micros_N('wait', wait), false);
    res := f.res;
    allowed := res[{out.granted}] = 1;
    s := headgate_internal.start_N(res, array[f.c]);
    start_at := s.start_at; delay := s.delay;
    retry_after := headgate_internal.retry_after_N(res);
    limit_name := f.name;
    replayed := headgate_internal.replayed_N(res);
    return next;
end $$;

-- headgate.acquire holds cost of a concurrency limit until headgate.release, or until
-- nobody has renewed it for the limit's ttl. lease is its number, for renew and
-- release; retry_after is until one ends if nobody renews it.
create or replace function headgate.acquire(rule text, key text, cost numeric default 1)
returns table (acquired boolean, lease bigint, ttl interval, retry_after interval, limit_name text)
language plpgsql volatile security definer set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off set search_path = pg_catalog, pg_temp as $$
declare
    f record; res bigint[];
begin
    f := headgate_internal.charge_N(1, rule, key, cost, 0, '', 0, true);
    res := f.res;
    acquired := res[{out.granted}] = 1;
    lease := case when acquired then res[{out.entry}] end;
    ttl := (f.c).params[{limit.step}] * interval '1 microsecond';
    retry_after := headgate_internal.retry_after_N(res);
    limit_name := f.name;
    return next;
end $$;

-- headgate.renew lets a lease last for the ttl that its limit has now, from now, and never for less
-- than it did. It returns false if the lease is lost: others may have it.
create or replace function headgate.renew(rule text, key text, lease bigint, out done boolean) language plpgsql volatile security definer
set enable_seqscan = off set search_path = pg_catalog, pg_temp as $$
declare
    f record;
begin
    f := headgate_internal.find_N(rule, key);
    perform headgate_internal.held_N(f.c);
    done := (headgate_internal.ask_N(7, f.name, f.c, key, 1, 0, '', entry => headgate_internal.checked_lease_N(lease)))[{out.granted}] = 1;
end $$;

-- headgate.release ends a lease. It returns false if it was lost or released before.
create or replace function headgate.release(rule text, key text, lease bigint, out done boolean) language plpgsql volatile security definer
set enable_seqscan = off set search_path = pg_catalog, pg_temp as $$
declare
    f record;
begin
    f := headgate_internal.find_N(rule, key);
    perform headgate_internal.held_N(f.c);
    done := (headgate_internal.ask_N(3, f.name, f.c, key, 9007199254740991, 0, '', entry => headgate_internal.checked_lease_N(lease)))[{out.granted}] > 0;
end $$;

create or replace function headgate_internal.checked_lease_N(lease bigint) returns bigint language plpgsql immutable as $$
begin
    if lease is null or lease < 1 then
        perform headgate_internal.fail_N('lease: was never acquired');
    end if;
    return lease;
end $$;
