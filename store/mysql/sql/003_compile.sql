-- The native copy of the notation: headgate_compile does what Parse does in
-- Go, in the same order and with the same refusals, and is tested against the
-- same golden file. Nothing here locks or writes.
--
-- All of it is procedures: where the binary log is on, MySQL wants a
-- privileged user to make a function, and an ordinary one for a procedure.
-- Text is declared utf8mb4_bin, so that neither the database's nor the
-- connection's collation decides what equals what.

-- headgate_fail raises the error that every bad argument gets. A message holds
-- 128 characters; MySQL refuses a longer one instead of cutting it.
drop procedure if exists headgate_fail
//
create procedure headgate_fail(in message varchar(2048) character set utf8mb4)
    deterministic contains sql sql security invoker
begin
    declare short varchar(128) character set utf8mb4;
    set message = coalesce(message, 'an argument is null');
    set short = if(char_length(message) > 128, concat(left(message, 125), '...'), message);
    signal sqlstate '45000' set message_text = short, mysql_errno = 1644;
end
//

-- headgate_parse_amount reads a positive decimal with up to nine digits after
-- the point, as coef / 10^places without trailing zeros. Patterns have no
-- anchors: with them, MariaDB and MySQL would let a line feed pass at the end.
drop procedure if exists headgate_parse_amount
//
create procedure headgate_parse_amount(
    in what varchar(16) character set utf8mb4,
    in s varchar(255) character set utf8mb4 collate utf8mb4_bin,
    out coef bigint, out places int)
    deterministic contains sql sql security invoker
begin
    declare whole, frac, digits varchar(255) character set utf8mb4 collate utf8mb4_bin;
    set whole = substring_index(s, '.', 1);
    set frac = substring(s, char_length(whole) + 2);
    if whole = '' or whole regexp '[^0-9]' or frac regexp '[^0-9]' or frac = '' and locate('.', s) > 0 then
        call headgate_fail(concat(what, ': "', s, if(left(s, 1) = '-', '" is negative; it must be above 0',
            '" is not a decimal number such as 3 or 0.5')));
    end if;
    set frac = trim(trailing '0' from frac);
    set digits = trim(leading '0' from concat(whole, frac));
    if char_length(frac) > 9 then
        call headgate_fail(concat(what, ': "', s, '" has more than 9 digits after the point'));
    elseif digits = '' then
        call headgate_fail(concat(what, ': is 0; it must be above 0'));
    elseif char_length(digits) > 16 then
        call headgate_fail(concat(what, ': "', s, '" is too large'));
    elseif cast(digits as signed) > 9007199254740991 then
        call headgate_fail(concat(what, ': "', s, '" is too large'));
    end if;
    set coef = cast(digits as signed), places = char_length(frac);
end
//

-- headgate_format_amount writes coef / 10^places as the shortest decimal.
drop procedure if exists headgate_format_amount
//
create procedure headgate_format_amount(in coef bigint, in places int,
    out s varchar(32) character set utf8mb4 collate utf8mb4_bin)
    deterministic contains sql sql security invoker
begin
    set s = coef;
    if places > 0 then
        -- lpad cuts what is longer than it is told.
        set s = lpad(s, greatest(places + 1, char_length(s)), '0');
        set s = concat(left(s, char_length(s) - places), '.', right(s, places));
    end if;
end
//

-- headgate_parse_period reads a length of time such as s, 30s or 1h30m, in
-- microseconds.
drop procedure if exists headgate_parse_period
//
create procedure headgate_parse_period(
    in what varchar(16) character set utf8mb4,
    in s varchar(255) character set utf8mb4 collate utf8mb4_bin,
    out micros bigint)
    deterministic contains sql sql security invoker
begin
    declare rest, number, name varchar(255) character set utf8mb4 collate utf8mb4_bin;
    declare n int;
    declare size bigint;
    declare total decimal(65, 0) default 0;
    if s = '' then
        call headgate_fail(concat(what, ': "" is empty'));
    end if;
    set rest = s;
    while rest <> '' do
        set n = 0;
        while ascii(substring(rest, n + 1, 1)) between 48 and 57 do
            set n = n + 1;
        end while;
        set number = left(rest, n), rest = substring(rest, n + 1), n = 0;
        while ascii(substring(rest, n + 1, 1)) between 97 and 122 do
            set n = n + 1;
        end while;
        set name = left(rest, n), rest = substring(rest, n + 1);
        set size = case name when 'us' then 1 when 'ms' then 1000 when 's' then 1000000
            when 'm' then 60000000 when 'h' then 3600000000 when 'd' then 86400000000 end;
        if number = '' and (total > 0 or rest <> '') then
            set size = null;
        elseif number = '' then
            set number = '1';
        end if;
        set number = trim(leading '0' from number);
        if char_length(number) > 19 or char_length(number) = 19 and number > '9223372036854775807' then
            call headgate_fail(concat(what, ': "', s, '" is too long'));
        elseif size is null then
            call headgate_fail(concat(what, ': "', s, '" is not a length of time such as 30s, 15m or 30d'));
        end if;
        if number <> '' then
            set total = total + cast(number as decimal(65, 0)) * size;
        end if;
        if total > 316224000000000 then
            call headgate_fail(concat(what, ': "', s, '" is longer than 3660d'));
        end if;
    end while;
    if total = 0 then
        call headgate_fail(concat(what, ': "', s, '" is 0; it must be above 0'));
    end if;
    set micros = total;
end
//

-- headgate_format_period writes a period with the longest unit that divides it.
drop procedure if exists headgate_format_period
//
create procedure headgate_format_period(in micros bigint,
    out s varchar(32) character set utf8mb4 collate utf8mb4_bin)
    deterministic contains sql sql security invoker
begin
    set s = case
        when micros mod 86400000000 = 0 then concat(micros div 86400000000, 'd')
        when micros mod 3600000000 = 0 then concat(micros div 3600000000, 'h')
        when micros mod 60000000 = 0 then concat(micros div 60000000, 'm')
        when micros mod 1000000 = 0 then concat(micros div 1000000, 's')
        when micros mod 1000 = 0 then concat(micros div 1000, 'ms')
        else concat(micros, 'us') end;
end
//

-- headgate_gcd returns the greatest common divisor.
drop procedure if exists headgate_gcd
//
create procedure headgate_gcd(in a decimal(65, 0), in b decimal(65, 0), out g decimal(65, 0))
    deterministic contains sql sql security invoker
begin
    set g = a;
    while b > 0 do
        set a = b, b = g mod b, g = a;
    end while;
end
//

-- headgate_compile_rate returns the bucket of amount per period with a burst,
-- exactly: compileRate in Go. Decimals, because products pass 2^63; and / where
-- a quotient may, because DIV answers with a BIGINT or an error. Every / here
-- divides without a rest.
drop procedure if exists headgate_compile_rate
//
create procedure headgate_compile_rate(
    in coef bigint, in places int, in micros bigint, in burst bigint, in burst_places int,
    out unit bigint, out capacity bigint, out step bigint, out drain bigint)
    deterministic contains sql sql security invoker
begin
    declare c_max decimal(65, 0) default 9007199254740991;
    declare g, turns decimal(65, 0) default 1;
    declare num, den, r, u, c, d decimal(65, 0);
    declare grain, finest int;
    set unit = null;
    while unit is null and g <= micros do
        set num = coef * g, den = pow(10, places) * cast(micros as decimal(65, 0));
        call headgate_gcd(num, den, r);
        set num = num / r, den = den / r, grain = 1000;
        while unit is null and grain > 0 do
            set finest = greatest(grain, pow(10, burst_places)), grain = grain div 10;
            call headgate_gcd(den, finest, r);
            set u = den / r * finest;
            if u <= c_max then
                set d = u / den * num, c = burst * u / pow(10, burst_places);
                if d <= c_max and c <= c_max then
                    set turns = (c + d - 1) div d;
                    if turns * g <= 4503599627370496 then
                        set unit = u, capacity = c, step = g, drain = d;
                    end if;
                end if;
            end if;
        end while;
        set g = g * 10;
    end while;
end
//
