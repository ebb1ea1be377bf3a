-- Cells as people read them, as of now. used is rounded up to a millionth. What a
-- bucket drains per step is not in the cell: it is taken from the limit, by its name
-- in headgate_limits or its notation; of a limit that is not known here the slowest
-- drain is taken that fits, so what is shown is never too low.
create or replace view headgate_levels as
select convert(c.limit_name using utf8mb4) as limit_name, convert(c.cell_key using utf8mb4) as `key`,
    cast(ceiling(cast(case
        when c.now >= c.empty_at then 0
        when c.law = 1 then if(c.steps < 2 or c.level = 0, c.level, -- a window, or as good as one
            greatest(0, c.level - coalesce(
                -- that of the limit, if it is one that would be empty then too
                (select l.drain from headgate_limits l where l.name = convert(c.limit_name using utf8mb4) collate utf8mb4_bin
                    and l.rule_compiled = l.rule and l.law = 1 and l.unit = c.unit and l.step = c.step
                    and l.drain >= c.slowest and (c.prev > 0 or cast(l.drain as decimal(38)) * (c.steps - 1) < c.level)),
                if(c.drain >= c.slowest and (c.prev > 0 or c.drain * (c.steps - 1) < c.level), c.drain, null),
                c.slowest) * ((c.now - c.at) div c.step)))
        when c.law = 2 then case c.now - c.now mod c.step
            when c.at - c.at mod c.step then c.level + (c.prev * least(c.parts, c.rest) + c.parts - 1) div c.parts
            when c.at - c.at mod c.step + c.step then (c.level * least(c.parts, c.rest) + c.parts - 1) div c.parts
            else 0 end
        else greatest(0, c.level - (select coalesce(sum(e.cost), 0) from headgate_entries e
            where e.limit_name = c.limit_name and e.cell_key = c.cell_key and e.granted = 1 and e.expires_at > c.at and e.expires_at <= c.now))
        end as decimal(46, 10)) * 1000000 / c.unit) * 0.000001 as decimal(30, 6)) as used,
    cast('1970-01-01' + interval c.at microsecond as datetime(6)) as updated_at,
    cast('1970-01-01' + interval c.empty_at microsecond as datetime(6)) as empty_at,
    if(c.blocked_until > c.clock, cast('1970-01-01' + interval c.blocked_until microsecond as datetime(6)), null) as blocked_until,
    nullif(convert(c.reason using utf8mb4), '') as reason
from (
    select d.*,
        (d.level + greatest(d.steps, 1) - 1) div greatest(d.steps, 1) as slowest,
        -- the parts of a sliding window, and how many of them are left
        d.step div d.grain as parts, (d.step - d.now mod d.step + d.grain - 1) div d.grain as rest,
        -- a notation says AMOUNT/PERIOD
        if(substring_index(d.limit_name, ' ', 1) in ('token-bucket', 'leaky-bucket', 'gcra', 'interval'),
            cast(substring_index(d.rate, '/', 1) as decimal(32, 9)) * d.unit * d.step / nullif(
                cast(coalesce(nullif(replace(replace(replace(replace(replace(d.per, 'u', ''), 'm', ''), 's', ''), 'h', ''), 'd', ''), ''), '1') as decimal(20)) *
                case when d.per like '%us' then 1 when d.per like '%ms' then 1000 when d.per like '%s' then 1000000
                    when d.per like '%m' then 60000000 when d.per like '%h' then 3600000000 when d.per like '%d' then 86400000000 end, 0), null) as drain
    from (
        select limit_name, cell_key, law, level, prev, at, unit, step, empty_at, blocked_until, reason,
            timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) as clock,
            greatest(timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)), at) as now,
            (empty_at - at) div greatest(step, 1) as steps,
            if(step mod ((step + 1048575) div 1048576) <> 0 and step mod 1000000 = 0, step div 1000000, greatest(1, (step + 1048575) div 1048576)) as grain,
            substring_index(substring_index(limit_name, ' ', 2), ' ', -1) as rate,
            substring_index(substring_index(substring_index(limit_name, ' ', 2), ' ', -1), '/', -1) as per
        from headgate_cells where law <> 0) d) c
//
