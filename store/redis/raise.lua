-- Makes what a Late request took in this slot, on trial or before, count from the
-- start of the last of its charges, which lies in another slot: what late.lua does
-- where all are in one. See start.go.
--
-- The charges are its ops, as they were asked. ARGV go on with the start, and for each
-- with what the trial made of its cell, what this has seen of it last, and what the
-- trial made it remember of an ID: see startTogether. Where others have come since
-- then, it stands behind them as if it came anew: they have been given their starts
-- as if it began earlier. What it took before stays too, and counts twice.
--
-- Returned are for each op the text of its cell, '' if it was reset or its limit
-- changed meanwhile; the credits in use, '' if they cannot be written down, or it
-- would have to wait for too long; the start, later if it has to stand behind others
-- until then: nothing is changed in either case; and again what was made of cell and
-- memory, unless others have touched them.

local start, pending, touched, results = tonumber(ARGV[2]), {}, {}, {}
for i, op in ipairs(rest) do
  local c, p = cell(op), op.p
  c.clock, c.test = op.clock, p.now > 0
  local r = { used = '', start = 0, after = ARGV[3 * i], admission = ARGV[3 * i + 2] }
  results[i] = r
  local now = call('GET', c.key)
  if touched[op.key] == nil then
    touched[op.key] = ARGV[3 * i + 1] ~= '' and now ~= ARGV[3 * i + 1]
  end
  if c.kind == p.kind and c.unit == p.unit then
    local cost = p.count * p.cost
    local n = (pending[op.key] or 0) + cost
    pending[op.key] = n
    local base = copy({ now = max(c.clock, c.at) }, c)
    local u = use(base, c, p, false)
    local d = { base = base, state = { at = u.t }, used = u.x }
    local own, fits = 0, true
    if touched[op.key] then
      d.used, own = min(u.x + cost, MAX), base.now
      if d.used > p.capacity then own = max(own, after(p, u.t, d.used - p.capacity)) end
      fits = d.used <= (p.ceiling > 0 and p.ceiling or p.capacity)
    end
    r.cell, r.untouched = c, now == r.after
    if fits and own > start then
      r.start, r.used = own, fmt(int, d.used)
    elseif fits and raise(d, p, start, own, n) then
      copy(c, d.state)
      save(c)
      r.start, r.used = start, fmt(int, d.used)
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
  list[#list + 1] = fmt(int, r.start)
  list[#list + 1] = r.untouched and v or r.after
  list[#list + 1] = r.admission
end
return list
