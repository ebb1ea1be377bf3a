-- Makes what a Late request took in this slot, on trial or before, count from the
-- start of the last of its charges, which lies in another slot: what late.lua does
-- where all are in one. See start.go.
--
-- The charges are its ops, as they were asked. ARGV go on with the start, and with
-- what the trial made of each cell, and made it remember of an ID: see startTogether.
-- Returned are for each op the text of its cell, '' if it was reset or its limit
-- changed meanwhile; the credits in use, '' if they cannot be written down: nothing
-- is changed then; and again what was made of cell and memory, unless others have
-- touched them.

local start, pending, results = tonumber(ARGV[2]), {}, {}
for i, op in ipairs(rest) do
  local c, p = cell(op), op.p
  c.clock, c.test = op.clock, p.now > 0
  local r = { used = '', after = ARGV[2 * i + 1], admission = ARGV[2 * i + 2] }
  results[i] = r
  if c.kind == p.kind and c.unit == p.unit then
    local n = (pending[op.key] or 0) + p.count * p.cost
    pending[op.key] = n
    local base = copy({ now = max(c.clock, c.at) }, c)
    local u = use(base, c, p, false)
    local d = { base = base, state = { at = u.t }, used = u.x }
    r.cell, r.untouched = c, call('GET', c.key) == r.after
    if raise(d, p, start, 0, n) then
      copy(c, d.state)
      save(c)
      r.used = fmt(int, d.used)
      local a = op.note > 0 and known(op)
      if a and a.settled < 0 then
        local v = numbers(a)
        a.outcome = fmt(NUMBERS, v[1], c.kind, c.level, c.prev, c.at, c.unit, c.empty, c.block, d.used, v[10], v[11], v[12], v[13], start)
        local mine = call('GET', KEYS[op.log + 2]) == r.admission
        local keep = max(tonumber(a.keep), start + p.ttl)
        a.keep = fmt(int, keep)
        put(op, a, life(keep, op.clock, p.now > 0))
        if mine then r.admission = call('GET', KEYS[op.log + 2]) end
      end
    end
  end
end
local list = {}
for _, r in ipairs(results) do
  local v = r.cell and text(r.cell) or ''
  list[#list + 1] = v
  list[#list + 1] = r.used
  list[#list + 1] = r.untouched and v or r.after
  list[#list + 1] = r.admission
end
return list
