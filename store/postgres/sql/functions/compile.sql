-- The native copy of the notation: headgate_internal.compile_N does what headgate.Parse
-- does in Go, and is tested against the same golden file. Nothing here locks
-- or writes.

-- headgate_internal.fail_N raises the error that every bad argument gets.
create or replace function headgate_internal.fail_N(message text) returns void language plpgsql as $$
begin
    raise exception '%', message using errcode = '22023';
end $$;

-- headgate_internal.parse_amount_N reads a positive decimal with up to nine digits after
-- the point.
create or replace function headgate_internal.parse_amount_N(field text, s text) returns numeric language plpgsql immutable as $$
declare
    v numeric;
begin
    if s !~ '^[0-9]+([.][0-9]+)?$' then
        perform headgate_internal.fail_N(format('%s: "%s" is not a decimal number such as 3 or 0.5', field, s));
    end if;
    v := trim_scale(s::numeric);
    if v = 0 then
        perform headgate_internal.fail_N(format('%s: is 0; it must be above 0', field));
    elsif scale(v) > 9 then
        perform headgate_internal.fail_N(format('%s: "%s" has more than 9 digits after the point', field, s));
    elsif v * 10::numeric ^ scale(v) > 9007199254740991 then
        perform headgate_internal.fail_N(format('%s: "%s" is too large', field, s));
    end if;
    return v;
end $$;

-- headgate_internal.parse_period_N reads a length of time such as s, 30s or 1h30m, and
-- returns microseconds.
create or replace function headgate_internal.parse_period_N(field text, s text) returns bigint language plpgsql immutable as $$
declare
    m text[]; total numeric := 0; unit numeric;
begin
    if s !~ '^([a-z]+|([0-9]+[a-z]+)+)$' then
        perform headgate_internal.fail_N(format('%s: "%s" is not a length of time such as 30s, 15m or 30d', field, s));
    end if;
    for m in select regexp_matches(s, '([0-9]*)([a-z]+)', 'g') loop
        unit := case m[2] when 'us' then 1 when 'ms' then 1000 when 's' then 1000000
            when 'm' then 60000000 when 'h' then 3600000000 when 'd' then 86400000000 end;
        if unit is null then
            perform headgate_internal.fail_N(format('%s: "%s" is not a length of time such as 30s, 15m or 30d', field, s));
        end if;
        total := total + case m[1] when '' then 1 else m[1]::numeric end * unit;
    end loop;
    if total = 0 then
        perform headgate_internal.fail_N(format('%s: "%s" is 0; it must be above 0', field, s));
    elsif total > 3660 * 86400000000 then
        perform headgate_internal.fail_N(format('%s: "%s" is longer than 3660d', field, s));
    end if;
    return total;
end $$;

create or replace function headgate_internal.format_period_N(us bigint) returns text language sql immutable as $$
    select case
        when us % 86400000000 = 0 then us / 86400000000 || 'd'
        when us % 3600000000 = 0 then us / 3600000000 || 'h'
        when us % 60000000 = 0 then us / 60000000 || 'm'
        when us % 1000000 = 0 then us / 1000000 || 's'
        when us % 1000 = 0 then us / 1000 || 'ms'
        else us || 'us' end
$$;

-- headgate_internal.compile_amount_N returns unit, capacity, step and drain of amount per
-- period with a burst, exactly: compileRate in Go, or compileCount for limits whose arithmetic needs no rate. The unit is
-- a multiple of the first of the grains by which all stays within most.
create or replace function headgate_internal.compile_amount_N(is_rate boolean, amount numeric, period bigint, burst numeric,
    most numeric default 9007199254740991, grains numeric[] default array[1000, 100, 10, 1])
returns bigint[] language plpgsql immutable as $$
declare
    g numeric := case when is_rate then 1 else period end;
    grain numeric; num numeric; den numeric; r numeric; unit numeric; drain numeric; capacity numeric;
begin
    while g <= period loop
        den := div(10::numeric ^ scale(amount), 1); num := div(amount * den, 1);
        if is_rate then
            r := gcd(num * g, den * period);
            num := div(num * g, r); den := div(den * period, r);
        end if;
        foreach grain in array grains loop
            unit := lcm(den, lcm(grain, div(10::numeric ^ scale(burst), 1)));
            drain := div(unit, den) * num;
            capacity := trim_scale(burst * unit);
            if (unit <= most or not is_rate) and drain <= most and capacity <= most
               and div(capacity + drain - 1, drain) * g <= 4503599627370496 then
                return array[{rate: unit => unit, capacity => capacity, step => g, drain => drain}]::bigint[];
            end if;
        end loop;
        g := g * 10;
        exit when not is_rate;
    end loop;
    if is_rate then
        perform headgate_internal.fail_N(format('amount: %s per %s with a burst of %s does not fit exactly into 53 bits, '
            'or a full bucket takes more than 142 years to empty', amount, headgate_internal.format_period_N(period), burst));
    end if;
    perform headgate_internal.fail_N(format('amount: %s is too large', amount));
end $$;

-- headgate_internal.compile_N reads a one-line limit.
create or replace function headgate_internal.compile_N(rule text) returns headgate.compiled language plpgsql stable as $$
#variable_conflict use_variable
declare
    c_max constant numeric := 9007199254740991;
    words text[]; algorithm text; w text; v text; i int; slash int;
    allowed text[];
    o jsonb := '{}'; -- the options, amounts and periods read
    amount numeric; period bigint; calendar text; zone text; burst numeric;
    prefetch numeric; share text; percent boolean; life bigint := 1000000;
    grains numeric[] := array[1000, 100, 10, 1]; -- the steps of a unit that may be counted in
    kind int; rate bigint[]; canonical text;
begin
    if rule is null then
        perform headgate_internal.fail_N('limit: is null');
    elsif octet_length(rule) > 255 then
        perform headgate_internal.fail_N(format('limit: is %s bytes long, at most 255 are allowed', octet_length(rule)));
    end if;
    words := regexp_split_to_array(btrim(rule, E' \t'), E'[ \t]+');
    if words = '{0}' then
        return ('0', array[{limit: kind => 1, unit => 2000000, capacity => 1, step => 1, drain => 1}], null, null)::headgate.compiled;
    elsif words = '{unlimited}' then
        return ('unlimited', array[{limit: kind => 1, unit => 1000, capacity => 9007199254740000, step => 1, drain => 9007199254740000}],
            null, null)::headgate.compiled;
    elsif words[1] ~ '^[0-9]' then -- a token bucket, without its name
        if words[2] = 'per' and words[3] is not null then
            words := array[words[1] || '/' || words[3]] || words[4:];
        end if;
        slash := position('/' in words[1]);
        w := case substr(words[1], slash + 1) when 'second' then '1s' when 'minute' then '1m' when 'hour' then '1h' when 'day' then '1d' end;
        words := array['token-bucket', case when slash > 0 and w is not null then left(words[1], slash) || w else words[1] end] || words[2:];
    end if;
    algorithm := words[1];
    allowed := case algorithm
        when 'token-bucket' then '{burst,prefetch}' when 'gcra' then '{burst,prefetch}' when 'interval' then '{burst,prefetch}'
        when 'leaky-bucket' then '{capacity,prefetch}' when 'fixed-window' then '{from-first,zone,prefetch}'
        when 'sliding-window' then '{}' when 'sliding-log' then '{history}' when 'concurrency' then '{ttl}' end;
    if allowed is null then
        perform headgate_internal.fail_N(format('algorithm: "%s" is not known; known are token-bucket, leaky-bucket, gcra, '
            'fixed-window, interval, sliding-window, sliding-log, concurrency', algorithm));
    elsif words[2] is null then
        perform headgate_internal.fail_N(format('amount: is missing in "%s"', rule));
    end if;
    slash := position('/' in words[2]);
    amount := headgate_internal.parse_amount_N('amount', case when slash > 0 then left(words[2], slash - 1) else words[2] end);
    if slash > 0 then
        w := substr(words[2], slash + 1);
        if w in ('minute', 'hour', 'day', 'week', 'month') then
            if algorithm <> 'fixed-window' then
                perform headgate_internal.fail_N(format('period: "%s" is a calendar''s, which only fixed-window follows', w));
            end if;
            calendar := w;
        else
            period := headgate_internal.parse_period_N('period', w);
        end if;
    end if;
    if (slash > 0) = (algorithm = 'concurrency') then
        perform headgate_internal.fail_N(format('period: %s in "%s"', case when slash > 0 then 'concurrency has none' else 'is missing' end, rule));
    end if;

    i := 3;
    while i <= cardinality(words) loop
        w := words[i]; v := '';
        if w in ('burst', 'capacity', 'history', 'block', 'ttl', 'prefetch', 'away', 'deadline', 'scale', 'notify') then
            i := i + 1;
            v := words[i];
            if v is null then
                perform headgate_internal.fail_N(format('%s: needs a value', w));
            end if;
        elsif w = 'wait' then
            perform headgate_internal.fail_N(format('%s: is reserved and does nothing yet', w));
        elsif position('/' in w) > 0 or w = 'UTC' or (calendar is not null and w ~ '^[A-Z]') then
            v := w; w := 'zone';
        elsif w <> 'from-first' then
            perform headgate_internal.fail_N(format('option: "%s" is not known', w));
        end if;
        if o ? w then
            perform headgate_internal.fail_N(format('%s: is said twice', w));
        elsif w <> all (allowed) and w not in ('block', 'away', 'deadline', 'scale', 'notify') then
            perform headgate_internal.fail_N(format('%s: does not apply to %s', w, algorithm));
        elsif w in ('burst', 'capacity') then
            v := headgate_internal.parse_amount_N(w, v);
        elsif w in ('history', 'block', 'ttl', 'deadline') then
            v := headgate_internal.parse_period_N(w, v);
        elsif w = 'scale' and v !~ '^[4-9]$' then
            perform headgate_internal.fail_N(format('scale: "%s" is not a number of digits from 4 to 9; without it costs are counted in thousandths', v));
        elsif w = 'notify' then -- who asks by another way than SQL is told
            if v !~ '^([1-9][0-9]?|100)%(,([1-9][0-9]?|100)%){0,3}$'
                or string_to_array(replace(v, '%', ''), ',')::int[] <> array(select distinct n from unnest(string_to_array(replace(v, '%', ''), ',')::int[]) n order by n) then
                perform headgate_internal.fail_N(format('notify: "%s" is not one to four whole percentages up to 100%%, ascending, such as 80%%,100%%', v));
            end if;
        elsif w = 'away' and v not in ('deny', 'share', 'allow') then
            perform headgate_internal.fail_N('away: must be deny, share or allow');
        elsif w = 'prefetch' then -- what nodes take up front is theirs to know; here it is part of the name
            share := split_part(v, '/', 1);
            percent := right(share, 1) = '%';
            prefetch := headgate_internal.parse_amount_N(w, case when percent then left(share, -1) else share end);
            if position('/' in v) > 0 then
                life := headgate_internal.parse_period_N(w, substr(v, position('/' in v) + 1));
            end if;
        end if;
        o := o || jsonb_build_object(w, v);
        i := i + 1;
    end loop;
    zone := o->>'zone';
    if o ? 'scale' then
        grains := array[div(10::numeric ^ (o->>'scale')::int, 1)];
    end if;
    if algorithm = 'concurrency' and not o ? 'ttl' then
        perform headgate_internal.fail_N('ttl: is missing: write concurrency AMOUNT ttl PERIOD');
    elsif algorithm = 'concurrency' and o->>'away' <> 'deny' then
        perform headgate_internal.fail_N(format('away: a lease cannot be had without the store; leave "away %s" out', o->>'away'));
    elsif zone is not null and calendar is null then
        perform headgate_internal.fail_N('zone: only a calendar''s windows (minute, hour, day, week, month) have a time zone');
    elsif o ? 'from-first' and calendar is not null then
        perform headgate_internal.fail_N('from-first: a calendar''s windows start by the calendar');
    end if;

    period := coalesce(period, (o->>'ttl')::bigint);
    burst := coalesce(o->>'burst', o->>'capacity', greatest(amount, 1)::text)::numeric;
    kind := case algorithm when 'sliding-window' then 2 when 'sliding-log' then 3 when 'concurrency' then 3 else 1 end;
    canonical := algorithm || ' ' || amount || case algorithm when 'concurrency' then ' ttl ' else '/' end || coalesce(calendar,
        case when period = 1000000 and allowed[1] in ('burst', 'capacity') then 's' else headgate_internal.format_period_N(period) end);
    if allowed[1] in ('burst', 'capacity') then
        rate := headgate_internal.compile_amount_N(algorithm <> 'interval', amount, period, burst, c_max, grains);
        canonical := canonical || ' ' || allowed[1] || ' ' || burst;
    else
        rate := headgate_internal.compile_amount_N(false, amount, 0, 1, case kind when 2 then 4294967295 else c_max end, grains);
        rate := array[{rate: unit => rate[{rate.unit}], capacity => rate[{rate.drain}], drain => case algorithm when 'fixed-window' then c_max else 0 end,
            step => coalesce(period, case calendar when 'minute' then 60 when 'hour' then 7200 when 'day' then 93600 when 'week' then 612000 else 2685600 end * 1000000::bigint)}];
    end if;
    canonical := canonical || case when o ? 'from-first' then ' from-first' else '' end || case when zone <> 'UTC' then ' ' || zone else '' end
        || coalesce(' history ' || headgate_internal.format_period_N((o->>'history')::bigint), '')
        || coalesce(' block ' || headgate_internal.format_period_N((o->>'block')::bigint), '') || coalesce(' scale ' || (o->>'scale'), '');
    if prefetch is not null then
        if div(prefetch * case when percent then rate[{rate.capacity}] else rate[{rate.unit}] * 100 end, 100) > rate[{rate.capacity}] then
            perform headgate_internal.fail_N(format('prefetch: %s is more than what passes at once', prefetch || case when percent then '%' else '' end));
        end if;
        canonical := canonical || ' prefetch ' || prefetch || case when percent then '%' else '' end
            || case when life <> 1000000 then '/' || headgate_internal.format_period_N(life) else '' end;
        if o ? 'notify' then
            perform headgate_internal.fail_N('notify: a limit with prefetch has none: the store does not see each token that is handed out');
        end if;
    end if;
    -- Who asks a store that is away knows what is answered then; here it is part of the name, too.
    canonical := canonical || coalesce(' away ' || nullif(o->>'away', 'deny'), '')
        || coalesce(' deadline ' || headgate_internal.format_period_N((o->>'deadline')::bigint), '') || coalesce(' notify ' || (o->>'notify'), '');

    if calendar is not null then
        zone := coalesce(zone, 'UTC');
        begin
            perform now() at time zone zone;
        exception when others then
            perform headgate_internal.fail_N(format('zone: "%s" is not a known time zone such as Europe/Berlin', zone));
        end;
    end if;
    return (canonical, array[{limit: kind => kind, unit => rate[{rate.unit}], capacity => rate[{rate.capacity}], step => rate[{rate.step}],
        drain => rate[{rate.drain}], block => coalesce((o->>'block')::bigint, 0), history => coalesce((o->>'history')::bigint, 0),
        anchor => case when algorithm <> 'fixed-window' or o ? 'from-first' then 0 when calendar <> 'minute' then 2 else 1 end}],
        nullif(calendar, 'minute'), case when calendar <> 'minute' then zone end)::headgate.compiled; -- no zone cuts a minute
end $$;

-- Limits are compiled when they are written, so that a bad one is refused there.
create or replace function headgate_internal.compile_limit() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if new.name !~ '^[a-z][a-z0-9_.-]{0,63}$' or new.name = 'unlimited' then
        perform headgate_internal.fail_N(format('name: "%s": a limit''s name is a small letter and up to 63 more small letters, digits or any of _ . -, and not unlimited', new.name));
    end if;
    new.compiled := case when new.rule !~ '^renamed from [a-z][a-z0-9_.-]*$' then headgate_internal.compile_N(new.rule) end;
    if tg_op = 'INSERT' or new.name <> old.name then
        new.varies := headgate_internal.varies_N(new.name);
    end if;
    return new;
end $$;

-- A notation is compiled when its row is written: so nobody can make it mean another limit.
create or replace function headgate_internal.compile_notation() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    new.compiled := headgate_internal.compile_N(new.rule);
    return new;
end $$;

-- What other functions have compiled is compiled again.
delete from headgate.notations;

-- headgate_internal.keep_N keeps a notation that was compiled, if there are less than 1000 and the
-- caller may insert.
create or replace function headgate_internal.keep_N(rule text) returns void language plpgsql volatile as $$
begin
    if has_table_privilege(headgate_internal.caller_N(), 'headgate.notations', 'insert') and (select count(*) from (select from headgate.notations limit 1000) n) < 1000 then
        insert into headgate.notations (rule) values (keep_N.rule);
    end if;
end $$;
