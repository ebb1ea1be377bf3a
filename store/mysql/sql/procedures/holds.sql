-- Which limit holds for a key: catalog/resolve.go in SQL. Keys and names are bytes, as in
-- headgate_catalog, so no collation decides what a prefix is.

-- headgate_longest_N returns the item of the longest prefix of a key, of those of a kind and a
-- name; found is null if there is none. Of the items up to the key, in the order of the index,
-- it looks at the last. That is the longest prefix, or no prefix at all; then a prefix is at
-- most as long as what the two have in common.
create procedure headgate_longest_N(p_kind varbinary(32), p_name varbinary(255), p_key varbinary(512),
    out found varbinary(512), out item_text varbinary(1020), out ends bigint)
reads sql data sql security invoker
begin
    declare low, high, middle int;
    search: loop
        set found = null;
        select c.item_key, c.`text`, c.`until` into found, item_text, ends from headgate_catalog c force index (primary)
        where c.kind = p_kind and c.name = p_name and c.item_key <= p_key order by c.item_key desc limit 1;
        if found is null or found = left(p_key, length(found)) then
            leave search;
        end if;
        set low = 0, high = least(length(found), length(p_key));
        while low < high do
            set middle = (low + high + 1) div 2;
            if left(found, middle) = left(p_key, middle) then
                set low = middle;
            else
                set high = middle - 1;
            end if;
        end while;
        set p_key = left(p_key, low);
    end loop;
end
//

-- headgate_holds_N returns the notation that holds for a key at a time, why it applies, in the
-- words of Decision.Applied, and between which times it holds; 0 without an end. It is given the
-- limit's own notation, which stays if there is nothing else, and which kinds of items there are:
-- see headgate_catalog_version.
create procedure headgate_holds_N(p_kinds int, p_limit varbinary(255), p_key varbinary(512), p_now bigint,
    inout rule varchar(255) character set utf8mb4 collate utf8mb4_bin, out applied varchar(1024) character set utf8mb4 collate utf8mb4_bin,
    out since bigint, out lapse bigint)
reads sql data sql security invoker
holding: begin
    declare found varbinary(512);
    declare item_text, value varbinary(1020);
    declare ends bigint;
    declare there int;
    declare rest varbinary(512);
    declare kinds int default 1; -- overrides of the key, then of its prefixes, plans of the key, of its prefixes
    set applied = '', since = 0, lapse = 0;
    while kinds <= 8 do
        set rest = p_key;
        search: while p_kinds & kinds do
            set found = null;
            if kinds in (2, 8) then
                call headgate_longest_N(if(kinds = 2, 'prefix-override', 'prefix-assignment'), if(kinds = 2, p_limit, ''), rest, found, value, ends);
            else
                select c.item_key, c.`text`, c.`until` into found, value, ends from headgate_catalog c
                where c.kind = if(kinds = 1, 'override', 'assignment') and c.name = if(kinds = 1, p_limit, '') and c.item_key = p_key;
            end if;
            if found is null then
                leave search;
            end if;
            set item_text = value, there = 1;
            if kinds >= 4 then -- the notation of the plan for the limit: null if the plan does not name it
                set item_text = (select c.`text` from headgate_catalog c where c.kind = 'plan' and c.name = value and c.item_key = p_limit),
                    there = item_text is not null or exists (select 1 from headgate_catalog c where c.kind = 'plan' and c.name = value);
            end if;
            if there and (ends = 0 or p_now < ends) then
                set lapse = ends;
                if item_text is not null then
                    set rule = convert(item_text using utf8mb4),
                        applied = concat(if(kinds < 4, 'override', concat('plan ', convert(value using utf8mb4))),
                            if(kinds in (2, 8), concat(' of ', convert(found using utf8mb4), '*'), ''));
                end if;
                leave holding;
            elseif there then
                set since = greatest(since, ends);
            end if;
            if kinds in (1, 4) or found = '' then
                leave search;
            end if;
            set rest = left(found, length(found) - 1);
        end while;
        set kinds = kinds * 2;
    end while;
end
//

-- headgate_limit_of tells which limit holds for a key now. One row: rule, its canonical notation; applied,
-- why that and not the limit itself, such as "override", "override of acme/*", "plan pro" or "plan
-- pro of acme/*", else empty; until, UTC, null without an end.
create procedure headgate_limit_of(rule varchar(2048) character set utf8mb4 collate utf8mb4_bin, `key` varchar(1024) character set utf8mb4 collate utf8mb4_bin)
modifies sql data sql security definer comment 'Which limit holds for a key now, why it is that one, and until when.'
begin
    declare notation varchar(2048) character set utf8mb4 collate utf8mb4_bin;
    declare applied varchar(1024) character set utf8mb4 collate utf8mb4_bin default '';
    declare canonical varchar(255) character set utf8mb4 collate utf8mb4_bin;
    declare since, lapse bigint default 0;
    call headgate_enter_N();
    call headgate_text_N('key', `key`, 512);
    call headgate_find_N(rule, `key`, {{clock}}, @hg_name, notation, applied, since, lapse, {{unused}});
    call headgate_compile_N(notation, canonical, {{unused}});
    select canonical as rule, applied, if(lapse > 0, cast('1970-01-01' + interval lapse microsecond as datetime(6)), null) as `until`;
end
//
