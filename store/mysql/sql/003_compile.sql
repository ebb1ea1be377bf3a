-- The native copy of the notation: headgate_compile does what headgate.Parse
-- does in Go, and is tested against the same golden file. Procedures, not
-- functions: with binary logging on, those take a right that few have.

drop procedure if exists headgate_fail
//
create procedure headgate_fail(message varchar(1024) character set utf8mb4) no sql sql security invoker
begin
    -- Servers keep 128 characters of it.
    declare m varchar(128) character set utf8mb4 default
        if(char_length(message) > 128, concat(left(message, 125), '...'), coalesce(message, 'a part of the message is null'));
    signal sqlstate '45000' set message_text = m;
end
//

-- A positive decimal with up to nine digits after the point.
drop procedure if exists headgate_parse_amount
//
create procedure headgate_parse_amount(field varchar(32) character set utf8mb4, s varchar(1024) character set utf8mb4 collate utf8mb4_bin, out v decimal(30, 9))
no sql sql security invoker
begin
    declare whole, part varchar(1024) character set utf8mb4 collate utf8mb4_bin default '';
    if s is null or not (s regexp '^[0-9]+([.][0-9]+)?$') then
        call headgate_fail(concat(field, ': "', coalesce(s, ''), '" is not a decimal number such as 3 or 0.5'));
    end if;
    set whole = trim(leading '0' from substring_index(s, '.', 1));
    if locate('.', s) > 0 then
        set part = trim(trailing '0' from substring_index(s, '.', -1));
    end if;
    if whole = '' and part = '' then
        call headgate_fail(concat(field, ': is 0; it must be above 0'));
    elseif length(part) > 9 then
        call headgate_fail(concat(field, ': "', s, '" has more than 9 digits after the point'));
    elseif length(whole) + length(part) > 16 or cast(concat('0', whole, part) as decimal(20)) > 9007199254740991 then
        call headgate_fail(concat(field, ': "', s, '" is too large'));
    end if;
    set v = cast(concat('0', whole, '.', part, '0') as decimal(30, 9));
end
//

-- A length of time such as s, 30s or 1h30m, in microseconds.
drop procedure if exists headgate_parse_period
//
create procedure headgate_parse_period(field varchar(32) character set utf8mb4, s varchar(1024) character set utf8mb4 collate utf8mb4_bin, out us bigint)
no sql sql security invoker
begin
    declare bad varchar(1024) character set utf8mb4 default concat(field, ': "', coalesce(s, ''), '" is not a length of time such as 30s, 15m or 30d');
    declare total decimal(65) default 0;
    declare i, digits int default 1;
    declare number, name varchar(1024) character set utf8mb4 collate utf8mb4_bin;
    declare unit bigint;
    if s is null or not (s regexp '^([a-z]+|([0-9]+[a-z]+)+)$') then
        call headgate_fail(bad);
    end if;
    while i <= char_length(s) do
        set digits = i;
        while substring(s, i, 1) regexp '[0-9]' do
            set i = i + 1;
        end while;
        set number = substring(s, digits, i - digits), digits = i;
        while substring(s, i, 1) regexp '[a-z]' do
            set i = i + 1;
        end while;
        set name = substring(s, digits, i - digits);
        set unit = case name when 'us' then 1 when 'ms' then 1000 when 's' then 1000000
            when 'm' then 60000000 when 'h' then 3600000000 when 'd' then 86400000000 end;
        if unit is null then
            call headgate_fail(bad);
        elseif length(number) > 18 then
            set total = 1e40;
        else
            set total = total + if(number = '', 1, cast(number as decimal(20))) * unit;
        end if;
    end while;
    if total = 0 then
        call headgate_fail(concat(field, ': "', s, '" is 0; it must be above 0'));
    elseif total > 3660 * 86400000000 then
        call headgate_fail(concat(field, ': "', s, '" is longer than 3660d'));
    end if;
    set us = total;
end
//

drop procedure if exists headgate_format_period
//
create procedure headgate_format_period(us bigint, out s varchar(32) character set utf8mb4) no sql sql security invoker
begin
    set s = case
        when us mod 86400000000 = 0 then concat(us div 86400000000, 'd')
        when us mod 3600000000 = 0 then concat(us div 3600000000, 'h')
        when us mod 60000000 = 0 then concat(us div 60000000, 'm')
        when us mod 1000000 = 0 then concat(us div 1000000, 's')
        when us mod 1000 = 0 then concat(us div 1000, 'ms')
        else concat(us, 'us') end;
end
//

-- A decimal without the zeros at its end, how many digits it has after the
-- point, and ten to the power of that.
drop procedure if exists headgate_plain
//
create procedure headgate_plain(v decimal(30, 9), out s varchar(64) character set utf8mb4, out pow10 decimal(65)) no sql sql security invoker
begin
    set s = trim(trailing '0' from cast(v as char));
    set pow10 = cast(concat('1', repeat('0', char_length(substring_index(s, '.', -1)))) as decimal(65));
    set s = trim(trailing '.' from s);
end
//

drop procedure if exists headgate_gcd
//
create procedure headgate_gcd(a decimal(65), b decimal(65), out g decimal(65)) no sql sql security invoker
begin
    declare r decimal(65);
    while b > 0 do
        set r = a mod b, a = b, b = r;
    end while;
    set g = a;
end
//

-- Unit, capacity, step and drain of amount per period with a burst, exactly:
-- compileRate in Go. unit is null when it does not fit.
drop procedure if exists headgate_compile_rate
//
create procedure headgate_compile_rate(amount decimal(30, 9), period bigint, burst decimal(30, 9),
    out unit bigint, out capacity bigint, out step bigint, out drain bigint)
no sql sql security invoker
begin
    declare g, grain, num, den, r, u, d, most decimal(65);
    declare amount10, burst10, c decimal(65);
    declare ignored varchar(64) character set utf8mb4;
    call headgate_plain(amount, ignored, amount10);
    call headgate_plain(burst, ignored, burst10);
    set g = 1, most = 9007199254740991, unit = null;
    search: while g <= period do
        set num = cast(amount * amount10 as decimal(65)) * g, den = amount10 * period;
        call headgate_gcd(num, den, r);
        set num = num / r, den = den / r;
        set grain = 1000;
        while grain >= 1 do
            call headgate_gcd(grain, burst10, r);
            set u = grain / r * burst10;
            call headgate_gcd(den, u, r);
            set u = den / r * u;
            set d = u / den * num;
            if u <= most and d <= most then
                set c = cast(burst * burst10 as decimal(65)) * (u / burst10);
                if c <= most and (c + d - 1 - (c + d - 1) mod d) / d * g <= 4503599627370496 then
                    set unit = u, capacity = c, step = g, drain = d;
                    leave search;
                end if;
            end if;
            set grain = if(grain = 1, 0, grain / 10);
        end while;
        set g = g * 10;
    end while;
end
//

-- headgate_zone says what is wrong with a time zone.
drop procedure if exists headgate_zone
//
create procedure headgate_zone(zone varchar(255) character set utf8mb4 collate utf8mb4_bin) no sql sql security invoker
begin
    if zone is null then
        call headgate_fail('zone: is null');
    elseif zone <> 'UTC' and (zone = 'SYSTEM' or convert_tz('2020-01-01 00:00:00', '+00:00', zone) is null) then
        if convert_tz('2020-01-01 00:00:00', '+00:00', 'UTC') is null then
            call headgate_fail(concat('time zone: the server does not know ', left(zone, 22),
                ': load its time zone tables (mariadb-tzinfo-to-sql or mysql_tzinfo_to_sql)'));
        end if;
        call headgate_fail(concat('zone: "', zone, '" is not a known time zone such as Europe/Berlin'));
    end if;
end
//

-- A one-line limit.
drop procedure if exists headgate_compile
//
create procedure headgate_compile(rule varchar(2048) character set utf8mb4 collate utf8mb4_bin,
    out canonical varchar(255) character set utf8mb4, out law int, out anchor int, out unit bigint, out capacity bigint,
    out step bigint, out drain bigint, out block bigint, out history bigint,
    out calendar varchar(8) character set utf8mb4, out zone varchar(64) character set utf8mb4)
no sql sql security invoker
begin
    declare rest, w, value, algorithm, known varchar(2048) character set utf8mb4 collate utf8mb4_bin;
    declare seen varchar(512) character set utf8mb4 collate utf8mb4_bin default ' ';
    declare amount_text, burst_text, period_text varchar(64) character set utf8mb4;
    declare amount, burst decimal(30, 9);
    declare amount10, burst10, grain, u, r, c, most decimal(65);
    declare period, ttl bigint;
    declare from_first, slash int default 0;

    if rule is null then
        call headgate_fail('limit: is null');
    elseif length(rule) > 255 then
        call headgate_fail(concat('limit: is ', length(rule), ' bytes long, at most 255 are allowed'));
    end if;
    set rest = trim(replace(rule, char(9 using utf8mb4), ' '));
    while locate('  ', rest) > 0 do
        set rest = replace(rest, '  ', ' ');
    end while;
    set algorithm = substring_index(rest, ' ', 1), rest = substring(rest, char_length(algorithm) + 2);
    set known = case algorithm when 'token-bucket' then ' burst block ' when 'gcra' then ' burst block ' when 'interval' then ' burst block '
        when 'leaky-bucket' then ' capacity block ' when 'fixed-window' then ' from-first zone block '
        when 'sliding-window' then ' block ' when 'sliding-log' then ' history block ' when 'concurrency' then ' ttl block ' end;
    if known is null then
        call headgate_fail(concat('algorithm: "', algorithm, '" is not known; known are token-bucket, leaky-bucket, gcra, '
            'fixed-window, interval, sliding-window, sliding-log, concurrency'));
    elseif rest = '' then
        call headgate_fail(concat('amount: is missing in "', rule, '"'));
    end if;
    set w = substring_index(rest, ' ', 1), rest = substring(rest, char_length(w) + 2);
    set slash = locate('/', w);
    call headgate_parse_amount('amount', if(slash > 0, left(w, slash - 1), w), amount);
    if slash > 0 then
        set w = substring(w, slash + 1);
        if w in ('minute', 'hour', 'day', 'week', 'month') then
            if algorithm <> 'fixed-window' then
                call headgate_fail(concat('period: "', w, '" is a calendar''s, which only fixed-window follows'));
            end if;
            set calendar = w;
        else
            call headgate_parse_period('period', w, period);
        end if;
    end if;
    if (slash > 0) = (algorithm = 'concurrency') then
        call headgate_fail(concat('period: ', if(slash > 0, 'concurrency has none', 'is missing'), ' in "', rule, '"'));
    end if;

    while rest <> '' do
        set w = substring_index(rest, ' ', 1), rest = substring(rest, char_length(w) + 2), value = null;
        if w in ('burst', 'capacity', 'history', 'block', 'ttl') then
            if rest = '' then
                call headgate_fail(concat(w, ': needs a value'));
            end if;
            set value = substring_index(rest, ' ', 1), rest = substring(rest, char_length(value) + 2);
        elseif w = 'from-first' then
            set from_first = 1;
        elseif w in ('lease', 'wait') then
            call headgate_fail(concat(w, ': is reserved and does nothing yet'));
        elseif locate('/', w) > 0 or w = 'UTC' or (calendar is not null and w regexp '^[A-Z]') then
            set zone = w, w = 'zone';
        else
            call headgate_fail(concat('option: "', w, '" is not known'));
        end if;
        if locate(concat(' ', w, ' '), seen) > 0 then
            call headgate_fail(concat(w, ': is said twice'));
        elseif locate(concat(' ', w, ' '), known) = 0 then
            call headgate_fail(concat(w, ': does not apply to ', algorithm));
        end if;
        set seen = concat(seen, w, ' ');
        case w
            when 'burst' then call headgate_parse_amount(w, value, burst);
            when 'capacity' then call headgate_parse_amount(w, value, burst);
            when 'history' then call headgate_parse_period(w, value, history);
            when 'block' then call headgate_parse_period(w, value, block);
            when 'ttl' then call headgate_parse_period(w, value, ttl);
            else begin end;
        end case;
    end while;

    set burst = coalesce(burst, greatest(amount, 1)), anchor = 0, drain = 0;
    call headgate_plain(amount, amount_text, amount10);
    call headgate_plain(burst, burst_text, burst10);
    if period is not null then
        call headgate_format_period(period, period_text);
    end if;
    if algorithm in ('token-bucket', 'leaky-bucket', 'gcra', 'interval') then
        set law = 1;
        if algorithm <> 'interval' then
            call headgate_compile_rate(amount, period, burst, unit, capacity, step, drain);
            if unit is null then
                call headgate_fail(concat('amount: ', amount_text, ' per ', period_text, ' with a burst of ', burst_text,
                    ' does not fit into 53 bits, or takes over 142 years to empty'));
            end if;
        else
            set grain = 1000;
            while unit is null and grain >= 1 do
                set u = greatest(grain, amount10, burst10);
                if amount * u <= 9007199254740991 and burst * u <= 9007199254740991 and mod(amount * u, 1) = 0 and mod(burst * u, 1) = 0
                   and (burst * u + amount * u - 1 - (burst * u + amount * u - 1) mod (amount * u)) / (amount * u) * period <= 4503599627370496 then
                    set unit = u, capacity = burst * u, step = period, drain = amount * u;
                end if;
                set grain = if(grain = 1, 0, grain / 10);
            end while;
        end if;
        set canonical = concat(algorithm, ' ', amount_text, '/', if(period = 1000000, 's', period_text),
            if(algorithm = 'leaky-bucket', ' capacity ', ' burst '), burst_text);
    else
        set law = case algorithm when 'fixed-window' then 1 when 'sliding-window' then 2 else 3 end;
        set most = if(law = 2, 4294967295, 9007199254740991), grain = 1000;
        while unit is null and grain >= 1 do
            call headgate_gcd(grain, amount10, r);
            set u = grain / r * amount10;
            set c = cast(amount * amount10 as decimal(65)) * (u / amount10);
            if c <= most then
                set unit = u, capacity = c;
            end if;
            set grain = if(grain = 1, 0, grain / 10);
        end while;
        set step = coalesce(period, ttl);
        if algorithm = 'concurrency' then
            if ttl is null then
                call headgate_fail('ttl: is missing: write concurrency AMOUNT ttl PERIOD');
            end if;
            call headgate_format_period(ttl, period_text);
            set canonical = concat('concurrency ', amount_text, ' ttl ', period_text);
        elseif algorithm = 'fixed-window' then
            if zone is not null and calendar is null then
                call headgate_fail('zone: only a calendar''s windows (minute, hour, day, week, month) have a time zone');
            elseif from_first and calendar is not null then
                call headgate_fail('from-first: a calendar''s windows start by the calendar');
            end if;
            set canonical = concat('fixed-window ', amount_text, '/', coalesce(calendar, period_text), if(from_first, ' from-first', ''),
                if(zone is null or zone = 'UTC', '', concat(' ', zone)));
            set drain = 9007199254740991,
                anchor = case when calendar = 'minute' then 1 when calendar is not null then 2 when from_first then 0 else 1 end,
                step = coalesce(period, case calendar when 'minute' then 60 when 'hour' then 7200 when 'day' then 93600
                    when 'week' then 612000 else 2685600 end * 1000000);
            if calendar is not null then
                set zone = coalesce(zone, 'UTC');
                call headgate_zone(zone);
                if calendar = 'minute' then -- no zone cuts a minute
                    set calendar = null, zone = null;
                end if;
            end if;
        else
            set canonical = concat(algorithm, ' ', amount_text, '/', period_text);
            if history is not null then
                call headgate_format_period(history, period_text);
                set canonical = concat(canonical, ' history ', period_text);
            end if;
        end if;
    end if;
    if unit is null then
        call headgate_fail(concat('amount: ', amount_text, ' is too large'));
    end if;
    if block is not null then
        call headgate_format_period(block, period_text);
        set canonical = concat(canonical, ' block ', period_text);
    end if;
    set block = coalesce(block, 0), history = coalesce(history, 0);
end
//
