-- A charge under an id that grows while its work goes on: headgate_extend and headgate_extend_all.

-- headgate_extend makes total what was charged under an id in all, all of it or nothing: what that is more than before is
-- decided as headgate_take decides a cost, and remembered for another life_seconds, of which 0 or null is an hour. A total
-- that is not more charges nothing, and answers what was answered first. One row, that of headgate_take, and charged:
-- what is charged in all, also if it was refused. An id that is not known or was settled is an error.
create procedure headgate_extend(id varchar(1024) character set utf8mb4 collate utf8mb4_bin, rule varchar(2048) character set utf8mb4 collate utf8mb4_bin,
    `key` varchar(1024) character set utf8mb4 collate utf8mb4_bin, total decimal(65, 30), life_seconds decimal(65, 30))
modifies sql data sql security definer comment 'Charges more under an id, so that total is charged in all. charged is what is, also if it was refused.'
begin
    call headgate_verb_N(10, 0, rule, `key`, total, coalesce(id, ''), life_seconds, 0, 0, '');
    {{figures}},
        cast(cast(@hg_charged as decimal(26, 9)) / @hg_c as decimal(26, 9)) as charged;
end
//

-- headgate_extend_all is headgate_extend for several charges of a request with an id, all or none; cost is what each has
-- charged in all from then on. They need not be all of the request's. The rows are those of headgate_take_all, with charged.
create procedure headgate_extend_all(id varchar(1024) character set utf8mb4 collate utf8mb4_bin, charges longtext character set utf8mb4 collate utf8mb4_bin,
    life_seconds decimal(65, 30))
modifies sql data sql security definer comment 'headgate_extend for several charges under an id, all or none. One row for each.'
begin
    call headgate_all_N(10, charges, coalesce(id, ''), life_seconds, 0);
    {{each extended}};
end
//
