-- Other ways to take: as much as fits, a float, or all of it or an error.

-- headgate.take_up_to takes as much of a cost as fits. accepted may be all of it or 0; level is what is in use then,
-- brim says that this is the capacity. retry_after is zero if anything was accepted, else until something fits. The
-- other columns are those of headgate.take.
create or replace function headgate.take_up_to(rule text, key text, cost numeric)
returns table (accepted numeric, level numeric, brim boolean, capacity bigint, remaining bigint, retry_after interval, reset_after interval,
    limit_name text, at timestamptz)
language plpgsql volatile security definer set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off set search_path = pg_catalog, pg_temp as $$
declare
    f record; res bigint[]; unit numeric; d headgate.decision;
begin
    f := headgate_internal.charge_N(1, rule, key, cost, 0, '', 0, false, true);
    res := f.res; unit := (f.c).params[{limit.unit}];
    accepted := trim_scale(div(res[{out.granted}]::numeric * 1000000, unit) / 1000000);
    level := trim_scale(div(res[{out.used}]::numeric * 1000000 + unit - 1, unit) / 1000000);
    brim := res[{out.used}] >= (f.c).params[{limit.capacity}];
    capacity := (f.c).params[{limit.capacity}] / (f.c).params[{limit.unit}];
    res[{out.granted}] := least(res[{out.granted}], 1);
    d := headgate_internal.figures_N(res, f.name, f.c);
    remaining := d.remaining; retry_after := d.retry_after; reset_after := d.reset_after; limit_name := d.limit_name; at := d.at;
    return next;
end $$;

-- headgate.take_float is headgate.take for a client that sends costs as double precision. The cost is the decimal that
-- the number prints as: the shortest that is read as the same number, such as 0.1.
create or replace function headgate.take_float(rule text, key text, cost double precision) returns headgate.decision
language plpgsql volatile security definer set extra_float_digits = 1 set search_path = pg_catalog, pg_temp as $$
begin
    if abs(cost) = 'Infinity' then -- which was no numeric before PostgreSQL 14
        perform headgate_internal.fail_N(format('cost: "%s" is not a decimal number such as 3 or 0.5', cost));
    end if;
    return headgate.take(rule, key, cost::text::numeric);
end $$;

-- headgate.enforce is headgate.take, but raises an error where that refuses: SQLSTATE PT429, which PostgREST answers
-- with status 429. Its detail is a JSON object with limit, remaining and retry_after in seconds, null for never. In a
-- transaction of PostgREST's the same is SQLSTATE PGRST, by which the answer has the header Retry-After too.
--
-- An error undoes what a refusal must keep: a block, and an attempt in the history. So a limit that has
-- either is an error with SQLSTATE 0A000, whether it refuses or not.
create or replace function headgate.enforce(rule text, key text, cost numeric default 1) returns headgate.decision
language plpgsql volatile security definer set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off set search_path = pg_catalog, pg_temp as $$
declare
    f record; d headgate.decision; seconds numeric; message text; detail text; hint text;
begin
    f := headgate_internal.charge_N(1, rule, key, cost, 0, '', 0, false);
    if (f.c).params[{limit.block}] > 0 or (f.c).params[{limit.history}] > 0 then
        raise exception 'limit: "%" has a %, which the error of a refusal would undo', f.name,
            case when (f.c).params[{limit.block}] > 0 then 'block' else 'history' end
            using errcode = '0A000', hint = 'Call headgate.take, and do not raise an error when it refuses; or enforce a limit without block and history.';
    end if;
    d := headgate_internal.figures_N(f.res, f.name, f.c);
    if d.allowed then
        return d;
    end if;
    seconds := trim_scale(extract(epoch from d.retry_after)::numeric);
    message := format('limit "%s" refuses', d.limit_name);
    detail := json_build_object('limit', d.limit_name, 'remaining', d.remaining, 'retry_after', seconds)::text;
    hint := coalesce('Try again in ' || ceil(seconds) || ' s.', 'The cost is more than can ever pass at once.');
    if coalesce(current_setting('request.method', true), '') <> '' then -- PostgREST sets it
        raise exception '%', json_build_object('code', 'PT429', 'message', message, 'details', detail, 'hint', hint)
            using errcode = 'PGRST', detail = json_build_object('status', 429,
                'headers', case when seconds is null then '{}' else json_build_object('Retry-After', ceil(seconds)::text) end);
    end if;
    raise exception '%', message using errcode = 'PT429', detail = detail, hint = hint;
end $$;
