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

-- headgate_internal.compile_rate_N returns unit, capacity, step and drain of amount per
-- period with a burst, exactly: compileRate in Go.
create or replace function headgate_internal.compile_rate_N(amount numeric, period bigint, burst numeric, grains numeric[] default array[1000, 100, 10, 1])
returns bigint[] language plpgsql immutable as $$
declare
    c_max constant numeric := 9007199254740991;
    g numeric := 1; grain numeric; num numeric; den numeric; r numeric; unit numeric; drain numeric; capacity numeric;
begin
    while g <= period loop
        num := amount * 10::numeric ^ scale(amount) * g;
        den := 10::numeric ^ scale(amount) * period;
        num := div(num, 1); den := div(den, 1);
        r := gcd(num, den);
        num := div(num, r); den := div(den, r);
        foreach grain in array grains loop
            unit := lcm(den, lcm(grain, div(10::numeric ^ scale(burst), 1)));
            drain := div(unit, den) * num;
            capacity := trim_scale(burst * unit);
            if unit <= c_max and drain <= c_max and capacity <= c_max
               and div(capacity + drain - 1, drain) * g <= 4503599627370496 then
                return array[{rate: unit => unit, capacity => capacity, step => g, drain => drain}]::bigint[];
            end if;
        end loop;
        g := g * 10;
    end loop;
    perform headgate_internal.fail_N(format('amount: %s per %s with a burst of %s does not fit exactly into 53 bits, '
        'or a full bucket takes more than 142 years to empty', amount, headgate_internal.format_period_N(period), burst));
end $$;

-- headgate_internal.compile_N reads a one-line limit.
create or replace function headgate_internal.compile_N(rule text) returns headgate.compiled language plpgsql stable as $$
#variable_conflict use_variable
declare
    c_max constant numeric := 9007199254740991;
    words text[]; algorithm text; w text; i int; slash int;
    amount numeric; period bigint; calendar text; burst numeric; capacity numeric; zone text; block bigint; history bigint; ttl bigint;
    prefetch numeric; share text; percent boolean; life bigint := 1000000; away text; deadline bigint; digits text;
    grains numeric[] := array[1000, 100, 10, 1]; -- the steps of a unit that may be counted in
    from_first boolean := false; seen text[] := '{}'; allowed text[];
    unit numeric; grain numeric; rate bigint[]; params bigint[]; canonical text; most numeric; drain numeric;
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
        w := words[i];
        if w in ('burst', 'capacity', 'history', 'block', 'ttl', 'prefetch', 'away', 'deadline', 'scale') then
            i := i + 1;
            if words[i] is null then
                perform headgate_internal.fail_N(format('%s: needs a value', w));
            end if;
        elsif w = 'from-first' then
            from_first := true;
        elsif w = 'wait' then
            perform headgate_internal.fail_N(format('%s: is reserved and does nothing yet', w));
        elsif position('/' in w) > 0 or w = 'UTC' or (calendar is not null and w ~ '^[A-Z]') then
            zone := w;
            w := 'zone';
        else
            perform headgate_internal.fail_N(format('option: "%s" is not known', w));
        end if;
        if w = any (seen) then
            perform headgate_internal.fail_N(format('%s: is said twice', w));
        elsif w <> all (allowed) and w not in ('block', 'away', 'deadline', 'scale') then
            perform headgate_internal.fail_N(format('%s: does not apply to %s', w, algorithm));
        end if;
        seen := seen || w;
        case w
            when 'burst' then burst := headgate_internal.parse_amount_N(w, words[i]);
            when 'capacity' then burst := headgate_internal.parse_amount_N(w, words[i]);
            when 'history' then history := headgate_internal.parse_period_N(w, words[i]);
            when 'block' then block := headgate_internal.parse_period_N(w, words[i]);
            when 'ttl' then ttl := headgate_internal.parse_period_N(w, words[i]);
            when 'deadline' then deadline := headgate_internal.parse_period_N(w, words[i]);
            when 'scale' then
                if words[i] !~ '^[4-9]$' then
                    perform headgate_internal.fail_N(format('scale: "%s" is not a number of digits from 4 to 9; without it costs are counted in thousandths', words[i]));
                end if;
                digits := words[i];
                grains := array[div(10::numeric ^ digits::int, 1)];
            when 'away' then
                if words[i] not in ('deny', 'share', 'allow') then
                    perform headgate_internal.fail_N('away: must be deny, share or allow');
                end if;
                away := nullif(words[i], 'deny');
            when 'prefetch' then
                -- What nodes take up front is theirs to know; here it is part of the name.
                share := split_part(words[i], '/', 1);
                percent := right(share, 1) = '%';
                prefetch := headgate_internal.parse_amount_N(w, case when percent then left(share, -1) else share end);
                if position('/' in words[i]) > 0 then
                    life := headgate_internal.parse_period_N(w, substr(words[i], position('/' in words[i]) + 1));
                end if;
            else null;
        end case;
        i := i + 1;
    end loop;

    burst := coalesce(burst, greatest(amount, 1));
    if algorithm in ('token-bucket', 'leaky-bucket', 'gcra') then
        rate := headgate_internal.compile_rate_N(amount, period, burst, grains);
        params := array[{terms: kind => 1, unit => rate[{rate.unit}], capacity => rate[{rate.capacity}], step => rate[{rate.step}], drain => rate[{rate.drain}]}];
        canonical := format('%s %s/%s %s %s', algorithm, amount,
            case when period = 1000000 then 's' else headgate_internal.format_period_N(period) end,
            case algorithm when 'leaky-bucket' then 'capacity' else 'burst' end, burst);
    elsif algorithm = 'interval' then
        foreach grain in array grains loop
            unit := greatest(grain, div(10::numeric ^ greatest(scale(amount), scale(burst)), 1));
            drain := trim_scale(amount * unit);
            capacity := trim_scale(burst * unit);
            if scale(drain) = 0 and scale(capacity) = 0 and drain <= c_max and capacity <= c_max
               and div(capacity + drain - 1, drain) * period <= 4503599627370496 then
                params := array[{terms: kind => 1, unit => unit, capacity => capacity, step => period, drain => drain}];
                exit;
            end if;
        end loop;
        canonical := format('interval %s/%s burst %s', amount, case when period = 1000000 then 's' else headgate_internal.format_period_N(period) end, burst);
    else
        most := case algorithm when 'sliding-window' then 4294967295 else c_max end;
        foreach grain in array grains loop
            unit := lcm(grain, div(10::numeric ^ scale(amount), 1));
            capacity := trim_scale(amount * unit);
            if capacity <= most then
                params := array[{terms: kind => case algorithm when 'fixed-window' then 1 when 'sliding-window' then 2 else 3 end, unit => unit,
                    capacity => capacity, step => coalesce(period, ttl), drain => case algorithm when 'fixed-window' then c_max else 0 end}];
                exit;
            end if;
        end loop;
        if algorithm = 'concurrency' then
            if ttl is null then
                perform headgate_internal.fail_N('ttl: is missing: write concurrency AMOUNT ttl PERIOD');
            end if;
            canonical := format('concurrency %s ttl %s', amount, headgate_internal.format_period_N(ttl));
        elsif algorithm = 'fixed-window' then
            if zone is not null and calendar is null then
                perform headgate_internal.fail_N('zone: only a calendar''s windows (minute, hour, day, week, month) have a time zone');
            elsif from_first and calendar is not null then
                perform headgate_internal.fail_N('from-first: a calendar''s windows start by the calendar');
            end if;
            canonical := format('fixed-window %s/%s', amount, coalesce(calendar, headgate_internal.format_period_N(period)))
                || case when from_first then ' from-first' else '' end
                || case when zone <> 'UTC' then ' ' || zone else '' end;
            if zone is null or zone = 'UTC' then
                canonical := format('fixed-window %s/%s', amount, coalesce(calendar, headgate_internal.format_period_N(period)))
                    || case when from_first then ' from-first' else '' end;
            end if;
            if params is not null then
                params[{limit.anchor}] := case when calendar = 'minute' then 1 when calendar is not null then 2 when from_first then 0 else 1 end;
                params[{limit.step}] := coalesce(period, case calendar when 'minute' then 60 when 'hour' then 7200 when 'day' then 93600
                    when 'week' then 612000 else 2685600 end * 1000000::bigint);
            end if;
            if calendar is not null then
                zone := coalesce(zone, 'UTC');
                begin
                    perform now() at time zone zone;
                exception when others then
                    perform headgate_internal.fail_N(format('zone: "%s" is not a known time zone such as Europe/Berlin', zone));
                end;
                if calendar = 'minute' then -- no zone cuts a minute
                    calendar := null; zone := null;
                end if;
            end if;
        else
            canonical := format('%s %s/%s', algorithm, amount, headgate_internal.format_period_N(period));
            if history is not null then
                canonical := canonical || ' history ' || headgate_internal.format_period_N(history);
            end if;
        end if;
    end if;
    if params is null then
        perform headgate_internal.fail_N(format('amount: %s is too large', amount));
    end if;
    if block is not null then
        canonical := canonical || ' block ' || headgate_internal.format_period_N(block);
    end if;
    if digits is not null then
        canonical := canonical || ' scale ' || digits;
    end if;
    if prefetch is not null then
        if (case when percent then div(prefetch * params[{limit.capacity}], 100) else div(prefetch * params[{limit.unit}], 1) end) > params[{limit.capacity}] then
            perform headgate_internal.fail_N(format('prefetch: %s is more than what passes at once', prefetch || case when percent then '%' else '' end));
        end if;
        canonical := canonical || ' prefetch ' || prefetch || case when percent then '%' else '' end
            || case when life <> 1000000 then '/' || headgate_internal.format_period_N(life) else '' end;
    end if;
    -- Who asks a store that is away knows what is answered then; here it is part of the name, too.
    if away is not null then
        if algorithm = 'concurrency' then
            perform headgate_internal.fail_N(format('away: a lease cannot be had without the store; leave "away %s" out', away));
        end if;
        canonical := canonical || ' away ' || away;
    end if;
    if deadline is not null then
        canonical := canonical || ' deadline ' || headgate_internal.format_period_N(deadline);
    end if;
    return (canonical, params || coalesce(block, 0) || coalesce(history, 0), calendar, zone)::headgate.compiled;
end $$;

-- Limits are compiled when they are written, so that a bad one is refused there.
create or replace function headgate_internal.compile_limit() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if new.name !~ '^[a-z][a-z0-9_.-]{0,63}$' or new.name = 'unlimited' then
        perform headgate_internal.fail_N(format('name: "%s": a limit''s name is a small letter and up to 63 more small letters, digits or any of _ . -, and not unlimited', new.name));
    end if;
    new.compiled := headgate_internal.compile_N(new.rule);
    if tg_op = 'INSERT' or new.name <> old.name then
        new.varies := headgate_internal.varies_N(new.name);
    end if;
    return new;
end $$;

-- The trigger stays where there is one: to make it again would wait for all who read limits.
do $$ begin
    if not exists (select from pg_trigger where tgrelid = 'headgate.limits'::regclass and tgname = 'compile_limit') then
        create trigger compile_limit before insert or update of name, rule on headgate.limits
            for each row execute function headgate_internal.compile_limit();
    end if;
end $$;

-- A notation is compiled when its row is written: so nobody can make it mean another limit.
create or replace function headgate_internal.compile_notation() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    new.compiled := headgate_internal.compile_N(new.rule);
    return new;
end $$;

do $$ begin
    if not exists (select from pg_trigger where tgrelid = 'headgate.notations'::regclass and tgname = 'compile_notation') then
        create trigger compile_notation before insert or update on headgate.notations
            for each row execute function headgate_internal.compile_notation();
    end if;
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
