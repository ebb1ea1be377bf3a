-- The native copy of the notation: headgate_compile_N does what Parse does in
-- Go, in the same order and with the same refusals, and is tested against the
-- same golden file. Nothing here locks or writes.
--
-- All of it is procedures: where the binary log is on, MySQL wants a
-- privileged user to make a function, and an ordinary one for a procedure.
-- Text is declared utf8mb4_bin, so that neither the database's nor the
-- connection's collation decides what equals what.

-- headgate_fail_N raises the error that every bad argument gets. A message holds
-- 128 characters; MySQL refuses a longer one instead of cutting it. What is quoted in
-- it, from somebody's argument, is shortened first. @hg_place says which of several charges it is about.
create procedure headgate_fail_N(in message varchar(2048) character set utf8mb4)
    deterministic contains sql sql security invoker
begin
    declare short varchar(128) character set utf8mb4;
    declare excess, opening, closing int;
    set message = concat(coalesce(@hg_place, ''), coalesce(message, 'an argument is null')), @hg_place = '';
    set excess = char_length(message) - 128, opening = locate('"', message), closing = char_length(message) + 1 - locate('"', reverse(message));
    if excess > 0 and closing - opening > 41 then
        set message = concat(left(message, opening + greatest(37, closing - opening - excess - 4)), '...', substring(message, closing));
    end if;
    set short = if(char_length(message) > 128, concat(left(message, 125), '...'), message);
    signal sqlstate '45000' set message_text = short, mysql_errno = 1644;
end
//

-- headgate_parse_amount_N reads a positive decimal with up to nine digits after
-- the point, as coef / scale, a power of ten that is as small as can be. Patterns
-- do not end with an anchor: MariaDB and MySQL would let a line feed pass there.
create procedure headgate_parse_amount_N(
    in what varchar(16) character set utf8mb4,
    in s varchar(255) character set utf8mb4 collate utf8mb4_bin,
    out coef bigint, out scale bigint)
    deterministic contains sql sql security invoker
begin
    declare whole, frac, digits varchar(255) character set utf8mb4 collate utf8mb4_bin;
    set whole = substring_index(s, '.', 1);
    set frac = substring(s, char_length(whole) + 2);
    if whole = '' or whole regexp '[^0-9]' or frac regexp '[^0-9]' or frac = '' and locate('.', s) > 0 then
        call headgate_fail_N(concat(what, ': "', s, if(left(s, 1) = '-', '" is negative; it must be above 0',
            '" is not a decimal number such as 3 or 0.5')));
    end if;
    set frac = trim(trailing '0' from frac);
    set digits = trim(leading '0' from concat(whole, frac));
    if char_length(frac) > 9 then
        call headgate_fail_N(concat(what, ': "', s, '" has more than 9 digits after the point'));
    elseif digits = '' then
        call headgate_fail_N(concat(what, ': is 0; it must be above 0'));
    elseif char_length(digits) > 16 or cast(left(digits, 16) as signed) > 9007199254740991 then
        call headgate_fail_N(concat(what, ': "', s, '" is too large'));
    end if;
    set coef = cast(digits as signed), scale = concat('1', repeat('0', char_length(frac)));
end
//

-- headgate_format_amount_N writes coef / scale as the shortest decimal.
create procedure headgate_format_amount_N(in coef bigint, in scale bigint,
    out s varchar(32) character set utf8mb4 collate utf8mb4_bin)
    deterministic contains sql sql security invoker
begin
    set s = trim(trailing '.' from trim(trailing '0' from cast(cast(coef as decimal(40, 9)) / scale as decimal(40, 9))));
end
//

-- headgate_parse_period_N reads a length of time such as s, 30s or 1h30m, in
-- microseconds.
create procedure headgate_parse_period_N(
    in what varchar(16) character set utf8mb4,
    in s varchar(255) character set utf8mb4 collate utf8mb4_bin,
    out micros bigint)
    deterministic contains sql sql security invoker
begin
    declare rest, number, name varchar(255) character set utf8mb4 collate utf8mb4_bin;
    declare size bigint;
    declare total decimal(65, 0) default 0;
    if s = '' then
        call headgate_fail_N(concat(what, ': "" is empty'));
    end if;
    set rest = s;
    while rest <> '' do
        set number = coalesce(regexp_substr(rest, '^[0-9]+'), ''), rest = substring(rest, char_length(number) + 1);
        set name = coalesce(regexp_substr(rest, '^[a-z]+'), ''), rest = substring(rest, char_length(name) + 1);
        set size = case name when 'us' then 1 when 'ms' then 1000 when 's' then 1000000
            when 'm' then 60000000 when 'h' then 3600000000 when 'd' then 86400000000 end;
        if number = '' and (total > 0 or rest <> '') then
            set size = null;
        elseif number = '' then
            set number = '1';
        end if;
        set number = trim(leading '0' from number);
        if char_length(number) > 19 or char_length(number) = 19 and number > '9223372036854775807' then
            call headgate_fail_N(concat(what, ': "', s, '" is too long'));
        elseif size is null then
            call headgate_fail_N(concat(what, ': "', s, '" is not a length of time such as 30s, 15m or 30d'));
        end if;
        if number <> '' then
            set total = total + cast(number as decimal(65, 0)) * size;
        end if;
        if total > 316224000000000 then
            call headgate_fail_N(concat(what, ': "', s, '" is longer than 3660d'));
        end if;
    end while;
    if total = 0 then
        call headgate_fail_N(concat(what, ': "', s, '" is 0; it must be above 0'));
    end if;
    set micros = total;
end
//

-- headgate_add_period_N adds a word and a period, with the longest unit that divides it, to a text; nothing for null.
create procedure headgate_add_period_N(in word varchar(16) character set utf8mb4, in micros bigint,
    inout s varchar(255) character set utf8mb4 collate utf8mb4_bin)
    deterministic contains sql sql security invoker
begin
    if micros is not null then
        set s = concat(s, word, case
            when micros mod 86400000000 = 0 then concat(micros div 86400000000, 'd')
            when micros mod 3600000000 = 0 then concat(micros div 3600000000, 'h')
            when micros mod 60000000 = 0 then concat(micros div 60000000, 'm')
            when micros mod 1000000 = 0 then concat(micros div 1000000, 's')
            when micros mod 1000 = 0 then concat(micros div 1000, 'ms')
            else concat(micros, 'us') end);
    end if;
end
//

-- headgate_gcd_N returns the greatest common divisor.
create procedure headgate_gcd_N(in a decimal(65, 0), in b decimal(65, 0), out g decimal(65, 0))
    deterministic contains sql sql security invoker
begin
    declare r decimal(65, 0);
    while b > 0 do
        set r = a mod b, a = b, b = r;
    end while;
    set g = a;
end
//

-- headgate_compile_amount_N returns the credits of amount and burst, exactly: compileRate in Go, with is_rate, or
-- compileCount for limits whose arithmetic needs no rate. unit is null if nothing fits. It is a multiple of 1000, or of what
-- the digits of a scale say, where all stays within most; and a burst that drains by the amount each step must be gone in
-- 142 years. micros 0: it does not drain. Decimals, because products pass 2^63; and / where a quotient may, because DIV
-- answers with a BIGINT or an error. Every / here divides without a rest.
create procedure headgate_compile_amount_N(
    in is_rate int, in coef decimal(65, 0), in scale decimal(65, 0), in micros decimal(65, 0), in burst decimal(65, 0),
    in burst_scale decimal(65, 0), in most bigint, in digits int,
    out unit bigint, out amount bigint, out capacity bigint, out step bigint)
    deterministic contains sql sql security invoker
begin
    declare least_grain decimal(65, 0) default pow(10, coalesce(digits, 0)); -- pow answers with a double
    declare g decimal(65, 0) default if(is_rate, 1, micros);
    declare r decimal(65, 0) default 1;
    declare num, den, grain, u, c, d decimal(65, 0);
    set unit = null;
    while unit is null and g <= micros do
        set num = coef, den = scale;
        if is_rate then
            set num = coef * g, den = scale * micros;
            call headgate_gcd_N(num, den, r);
            set num = num / r, den = den / r;
        end if;
        set grain = pow(10, coalesce(digits, 3));
        while unit is null and grain >= least_grain do
            set u = greatest(grain, burst_scale);
            call headgate_gcd_N(den, u, r);
            set u = den / r * u;
            if u <= most or not is_rate then
                set d = u / den * num;
                set c = burst * u / burst_scale;
                if d <= most and c <= most and (c + d - 1) div d * g <= 4503599627370496 then
                    set unit = u, amount = d, capacity = c, step = g;
                end if;
            end if;
            set grain = grain div 10;
        end while;
        set g = if(is_rate, g * 10, micros + 1);
    end while;
end
//

-- headgate_check_zone_N refuses a time zone that the server does not know.
-- CONVERT_TZ would take SYSTEM too, which is another one on each server.
create procedure headgate_check_zone_N(in zone varchar(255) character set utf8mb4 collate utf8mb4_bin)
    reads sql data sql security invoker
begin
    declare moment datetime default '2020-01-01 00:00:00';
    if zone = 'UTC' then
        set moment = null; -- known without tables
    elseif upper(zone) <> 'SYSTEM' and convert_tz(moment, '+00:00', 'UTC') is null and convert_tz(moment, '+00:00', zone) is null then
        call headgate_fail_N(concat('time zone: the server does not know ', zone,
            ': load its time zone tables (mariadb-tzinfo-to-sql or mysql_tzinfo_to_sql)'));
    elseif upper(zone) = 'SYSTEM' or char_length(zone) > 64 or convert_tz(moment, '+00:00', zone) is null then
        call headgate_fail_N(concat('zone: "', zone, '" is not a known time zone such as Europe/Berlin'));
    end if;
end
//

-- headgate_compile_N reads a one-line limit. calendar and zone are null unless
-- the windows follow a calendar.
create procedure headgate_compile_N(
    in rule varchar(1024) character set utf8mb4 collate utf8mb4_bin,
    out canonical varchar(255) character set utf8mb4 collate utf8mb4_bin,
    out law int, out anchor int, out unit bigint, out capacity bigint, out step bigint, out drain bigint,
    out block bigint, out history bigint,
    out calendar varchar(8) character set utf8mb4 collate utf8mb4_bin,
    out zone varchar(64) character set utf8mb4 collate utf8mb4_bin)
    reads sql data sql security invoker
compiling: begin
    declare c_max bigint default 9007199254740991;
    declare words varchar(512) character set utf8mb4 collate utf8mb4_bin default '';
    declare kind, w, v, per, seen, allowed varchar(255) character set utf8mb4 collate utf8mb4_bin default '';
    -- The values of the options as they are written; null: not said.
    declare o_burst, o_history, o_block, o_ttl, o_prefetch, o_zone, o_away, o_deadline, o_scale, o_notify varchar(255) character set utf8mb4 collate utf8mb4_bin;
    declare amount_text, burst_text varchar(255) character set utf8mb4 collate utf8mb4_bin;
    declare i, n, digits int;
    declare coef, scale, burst, burst_scale, micros, deadline, prefetch_scale bigint;
    declare prefetch, life bigint default 1000000;
    declare has_period, from_first, percent, is_rate boolean default false;

    set law = 1, anchor = 0, drain = 0, block = 0, history = 0, calendar = null, zone = null;
    if rule is null then
        call headgate_fail_N('limit: is null');
    elseif length(rule) > 255 then
        call headgate_fail_N(concat('limit: is ', length(rule), ' bytes long, at most 255 are allowed'));
    end if;

    -- The words, with one blank between them.
    set words = trim(replace(rule, char(9 using utf8mb4), ' '));
    while locate('  ', words) > 0 do
        set words = replace(words, '  ', ' ');
    end while;
    if words = '' then
        call headgate_fail_N('limit: is empty; write for example token-bucket 100/s burst 200');
    end if;
    if words = '0' then
        set canonical = '0', unit = 2000000, capacity = 1, step = 1, drain = 1;
        leave compiling;
    elseif words = 'unlimited' then
        set canonical = 'unlimited', unit = 1000, capacity = 9007199254740000, step = 1, drain = 9007199254740000;
        leave compiling;
    end if;
    -- A token bucket, without its name.
    set w = left(substring_index(words, ' ', 1), 255);
    if w regexp '^[0-9]' then
        set words = substring(words, char_length(w) + 2);
        if words = 'per' then
            call headgate_fail_N('period: is missing: write for example 100 per minute');
        elseif words like 'per %' then
            set words = substring(words, 5);
            set per = substring_index(words, ' ', 1), words = substring(words, char_length(substring_index(words, ' ', 1)) + 2);
            set w = left(concat(w, '/', per), 255);
        end if;
        set per = if(locate('/', w) > 0, substring(w, char_length(substring_index(w, '/', 1)) + 2), '');
        if per in ('second', 'minute', 'hour', 'day') then
            set w = concat(substring_index(w, '/', 1), '/1', left(per, 1));
        end if;
        set words = concat_ws(' ', 'token-bucket', w, nullif(words, ''));
    end if;
    set n = 1 + char_length(words) - char_length(replace(words, ' ', ''));
    set kind = substring_index(words, ' ', 1);
    set allowed = case kind
        when 'token-bucket' then 'burst,prefetch' when 'gcra' then 'burst,prefetch' when 'interval' then 'burst,prefetch'
        when 'leaky-bucket' then 'capacity,prefetch' when 'fixed-window' then 'from-first,zone,prefetch'
        when 'sliding-window' then '' when 'sliding-log' then 'history' when 'concurrency' then 'ttl' end;
    if allowed is null then
        call headgate_fail_N(concat('algorithm: "', kind, '" is not known; known are token-bucket, leaky-bucket, gcra, ',
            'fixed-window, interval, sliding-window, sliding-log, concurrency'));
    elseif n = 1 then
        call headgate_fail_N(concat('amount: is missing: write ', kind,
            if(kind = 'concurrency', ' AMOUNT ttl PERIOD', ' AMOUNT/PERIOD')));
    end if;

    set allowed = concat(allowed, ',block,away,deadline,scale,notify');

    -- AMOUNT[/PERIOD]
    set w = substring_index(substring_index(words, ' ', 2), ' ', -1);
    set per = substring(w, char_length(substring_index(w, '/', 1)) + 2);
    set has_period = locate('/', w) > 0;
    call headgate_parse_amount_N('amount', substring_index(w, '/', 1), coef, scale);
    if per in ('minute', 'hour', 'day', 'week', 'month') then
        if kind <> 'fixed-window' then
            call headgate_fail_N(concat('period: "', per, '" is a calendar''s, which only fixed-window follows; ',
                'write a length of time such as 1m, 1h, 1d or 30d'));
        end if;
        set calendar = per;
    elseif has_period then
        call headgate_parse_period_N('period', per, micros);
    end if;

    -- The options, each at most once: first sorted, then read in Go's order,
    -- so that of two mistakes the same one is named.
    set i = 3;
    while i <= n do
        set w = substring_index(substring_index(words, ' ', i), ' ', -1);
        set v = w;
        if w in ('burst', 'capacity', 'history', 'block', 'ttl', 'prefetch', 'away', 'deadline', 'scale', 'notify') then
            set i = i + 1;
            if i > n then
                call headgate_fail_N(concat(w, ': needs a value'));
            end if;
            set v = substring_index(substring_index(words, ' ', i), ' ', -1);
        elseif w = 'wait' then
            call headgate_fail_N(concat(w, ': is reserved and does nothing yet'));
        elseif locate('/', w) > 0 or w = 'UTC' or calendar is not null and ascii(w) between 65 and 90 then
            set w = 'zone';
        elseif w <> 'from-first' then
            call headgate_fail_N(concat('option: "', w, '" is not known; options are burst, capacity, from-first, ',
                'history, block, prefetch, ttl, away, deadline, scale, notify and a calendar''s time zone'));
        end if;
        if find_in_set(w, seen) > 0 then
            call headgate_fail_N(concat(w, ': is said twice'));
        end if;
        set seen = concat(seen, if(seen = '', '', ','), w);
        case w
            when 'history' then set o_history = v;
            when 'block' then set o_block = v;
            when 'ttl' then set o_ttl = v;
            when 'prefetch' then set o_prefetch = v;
            when 'away' then set o_away = v;
            when 'deadline' then set o_deadline = v;
            when 'scale' then set o_scale = v;
            when 'notify' then set o_notify = v;
            when 'zone' then set o_zone = v;
            when 'from-first' then set from_first = true;
            else

                -- burst or capacity: what the algorithm does not take is
                -- refused below before its value is looked at.
                if find_in_set(w, allowed) > 0 then
                    set o_burst = v;
                end if;
        end case;
        set i = i + 1;
    end while;
    if o_block is not null then
        call headgate_parse_period_N('block', o_block, block);
    end if;
    if o_prefetch is not null and find_in_set('prefetch', allowed) > 0 then
        set v = substring_index(o_prefetch, '/', 1);
        set percent = right(v, 1) = '%';
        call headgate_parse_amount_N('prefetch', if(percent, left(v, char_length(v) - 1), v), prefetch, prefetch_scale);
        if locate('/', o_prefetch) > 0 then
            call headgate_parse_period_N('prefetch', substring(o_prefetch, locate('/', o_prefetch) + 1), life);
        end if;
    end if;
    if o_away not in ('deny', 'share', 'allow') then
        call headgate_fail_N('away: must be deny, share or allow');
    end if;
    if o_deadline is not null then
        call headgate_parse_period_N('deadline', o_deadline, deadline);
    end if;
    if char_length(o_scale) <> 1 or ascii(o_scale) not between 52 and 57 then
        call headgate_fail_N(concat('scale: "', o_scale, '" is not a number of digits from 4 to 9; without it costs are counted in thousandths'));
    end if;
    set digits = o_scale;

    -- v is what is left of the percentages, i the one before.
    set v = coalesce(o_notify, ''), i = 0;
    while v <> '' do
        set w = substring_index(v, '%', 1);
        if o_notify regexp '[^0-9%,]' or o_notify not regexp '^([1-9][0-9]?|100)%(,([1-9][0-9]?|100)%){0,3}$' or w <= i then
            call headgate_fail_N(concat('notify: "', o_notify, '" is not one to four whole percentages up to 100%, ascending, such as 80%,100%'));
        end if;
        set i = w, v = substring(v, char_length(w) + 3);
    end while;

    -- What each algorithm makes of them.
    if kind = 'concurrency' and has_period then
        call headgate_fail_N('period: concurrency has none: write concurrency AMOUNT ttl PERIOD');
    elseif kind <> 'concurrency' and not has_period then
        call headgate_fail_N(concat('period: is missing: write ', kind, ' AMOUNT/PERIOD'));
    end if;
    if o_burst is not null then
        call headgate_parse_amount_N(if(kind = 'leaky-bucket', 'capacity', 'burst'), o_burst, burst, burst_scale);
    end if;
    if kind = 'fixed-window' and calendar is null and o_zone is not null then
        call headgate_fail_N('zone: only a calendar''s windows (minute, hour, day, week, month) have a time zone');
    elseif kind = 'fixed-window' and calendar is not null and from_first then
        call headgate_fail_N('from-first: a calendar''s windows start by the calendar');
    elseif kind = 'sliding-log' and o_history is not null then
        call headgate_parse_period_N('history', o_history, history);
    elseif kind = 'concurrency' and o_ttl is not null then
        call headgate_parse_period_N('ttl', o_ttl, micros);
    elseif kind = 'concurrency' then
        call headgate_fail_N('ttl: is missing: write concurrency AMOUNT ttl PERIOD');
    end if;
    while seen <> '' do
        set w = substring_index(seen, ',', 1);
        if find_in_set(w, allowed) = 0 then
            call headgate_fail_N(concat(w, ': does not apply to ', kind));
        end if;
        set seen = substring(seen, char_length(w) + 2);
    end while;

    -- The numbers.
    set is_rate = kind in ('token-bucket', 'leaky-bucket', 'gcra');
    if burst is null then
        set burst = if(coef < scale, 1, coef), burst_scale = if(coef < scale, 1, scale);
    end if;
    call headgate_format_amount_N(coef, scale, amount_text);
    call headgate_format_amount_N(burst, burst_scale, burst_text);
    if is_rate or kind = 'interval' then
        call headgate_compile_amount_N(is_rate, coef, scale, micros, burst, burst_scale, c_max, digits, unit, drain, capacity, step);
    else
        call headgate_compile_amount_N(0, coef, scale, 0, 1, 1, if(kind = 'sliding-window', 4294967295, c_max), digits, unit, capacity, drain, step);
        -- One step empties a fixed window, however far force has filled it.
        set drain = if(kind = 'fixed-window', c_max, 0), step = micros;
    end if;
    if unit is null then
        if is_rate then
            call headgate_add_period_N(' per ', micros, amount_text);
        end if;
        call headgate_fail_N(concat('amount: ', amount_text, if(is_rate or kind = 'interval', concat(' with a burst of ', burst_text), ''), if(is_rate,
            ' does not fit exactly into 53 bits, or a full bucket takes more than 142 years to empty', ' is too large')));
    end if;
    set law = case kind when 'sliding-window' then 2 when 'sliding-log' then 3 when 'concurrency' then 3 else 1 end;
    if kind = 'fixed-window' and not from_first then
        set anchor = if(calendar is null, 1, 2);
    end if;
    if calendar is not null then
        set zone = 'UTC';
        if o_zone is not null then
            call headgate_check_zone_N(o_zone);
            set zone = o_zone;
        end if;

        -- No window of the unit is longer than the step.
        set step = 1000000 * case calendar when 'minute' then 60 when 'hour' then 7200
            when 'day' then 93600 when 'week' then 612000 else 2685600 end;
    end if;

    -- The canonical notation.
    set canonical = concat(kind, ' ', amount_text, if(kind = 'concurrency', ' ttl ', '/'));
    if calendar is not null then
        set canonical = concat(canonical, calendar);
    elseif micros = 1000000 and (is_rate or kind = 'interval') then
        set canonical = concat(canonical, 's');
    else
        call headgate_add_period_N('', micros, canonical);
    end if;
    set canonical = concat(canonical, if(is_rate or kind = 'interval', concat(if(kind = 'leaky-bucket', ' capacity ', ' burst '), burst_text), ''),
        if(from_first, ' from-first', ''), if(zone <> 'UTC', concat(' ', zone), ''));
    if calendar = 'minute' then -- no zone cuts a minute
        set anchor = 1, calendar = null, zone = null;
    end if;
    call headgate_add_period_N(' history ', nullif(history, 0), canonical);
    call headgate_add_period_N(' block ', nullif(block, 0), canonical);
    set canonical = concat(canonical, coalesce(concat(' scale ', digits), ''));

    -- What nodes take up front is theirs to know; here it is part of the name.
    if o_prefetch is not null then
        call headgate_format_amount_N(prefetch, prefetch_scale, amount_text);
        if cast(prefetch as decimal(40)) * if(percent, capacity, unit)
            >= cast(prefetch_scale as decimal(40)) * if(percent, 100, 1) * (capacity + 1) then
            call headgate_fail_N(concat('prefetch: ', amount_text, if(percent, '%', ''), ' is more than what passes at once'));
        end if;
        set canonical = concat(canonical, ' prefetch ', amount_text, if(percent, '%', ''));
        call headgate_add_period_N('/', nullif(life, 1000000), canonical);
        if o_notify is not null then
            call headgate_fail_N('notify: a limit with prefetch has none: the store does not see each token that is handed out');
        end if;
    end if;
    -- Who asks a store that is away knows what is answered then; here it is part of the name, too.
    if o_away <> 'deny' then
        if kind = 'concurrency' then
            call headgate_fail_N(concat('away: a lease cannot be had without the store; leave "away ', o_away, '" out'));
        end if;
        set canonical = concat(canonical, ' away ', o_away);
    end if;
    call headgate_add_period_N(' deadline ', deadline, canonical);
    set canonical = concat(canonical, coalesce(concat(' notify ', o_notify), ''));
end
//
