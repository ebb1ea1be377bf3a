-- Requests with an ID that charge more: law/extend.go line by line. A request has one op of
-- each cell.

-- extend remembers that an op was charged in addition, in a and in the log of its cell.
-- number is that of its new entry there.
local function extend(op, a, number)
  local p, c, n, following = op.p, cell(op), numbers(a)
  local last = { following(), following(), following(), following() }
  a.cost = a.cost + p.cost
  if a.rule ~= ARGV[op.note + 1] then a.rule = '0 0 0 0 0 0' end
  if p.kind ~= 3 then
    if is_fixed_window(p) then n.level = min(n.level + (last[1] or 0), MAX) end
    last = { fmt(int, p.cost), fmt(int, c.level), fmt(int, c.at), fmt(int, c.prev) }
  else
    local member, expires
    if n.entry > 0 then member, expires = entry(c, n.entry, c.at) end
    if member then
      local credits = cost_of(member)
      op.moved = fmt('%.0f ', expires) .. member
      lower(c, member, expires, credits, p.history)
      lower(c, c.member, c.at + p.step, -credits, p.history)
    end
    n.entry = number
  end
  table.insert(last, 1, fmt(NUMBERS, {each out: n.*}))
  a.outcome = table.concat(last, ' ')
end

-- apply_extend charges what the ops from i to j cost more than was charged under their ID,
-- all or none of it. Their answers say what is charged in all. An op that needs nothing more
-- is told what an earlier request has charged, which may be on trial: it is not for that
-- request to give back any more. Such an op is not given back itself, only remembered for
-- longer.
local function apply_extend(i, j)
  local as, more = {}, {}
  for k = i, j do
    local op = rest[k]
    local a = known(op)
    if not a or a.settled ~= UNSETTLED then
      fail_all(i, j, a and SETTLED or UNKNOWN)
      return
    elseif numbers(a).unit ~= op.p.unit then -- the costs are in other credits
      fail_all(i, j, REUSED)
      return
    end
    as[op] = a
    if op.p.cost > a.cost then
      op.p = setmetatable({ cost = op.p.cost - a.cost, verb = 1, extends = true }, { __index = op.p })
      more[#more + 1] = op
    end
  end
  local admitted = #more == 0 or group(more, 1, #more)
  for k = i, j do
    local op = rest[k]
    local a, charged = as[op], op.p.verb == 1
    if not charged then replay(op, numbers(a)) end
    local v = answers[op.at + 1]
    local said = { unpack(ANSWER, v) }
    if admitted then
      if charged then
        op.forgotten, op.remembered = on_trial and call('GET', KEYS[op.log + 2]), true
        extend(op, a, said[1 + {out.entry}])
      end
      a.shared = charged and '0' or '1' -- see known in register.lua
      local keep = max(a.keep + 0, op.clock + op.p.ttl)
      a.keep = fmt(int, keep)
      put(op, a, life(keep, op.clock, op.p.now > 0))
    end
    if said[1 + {out.status}] ~= STALE then
      answers[op.at + 1] = string.sub(v, 1, 8 * {out.granted} - 7) .. pack('<d', a.cost) .. string.sub(v, 8 * {out.granted} + 2)
    end
  end
end
