-- The ops that are left to decide, from rest. What is asked holds a
-- limit, p, and what an op says of it; ops who ask the same share it.

local params = {}
local function read(asked)
  local p = { verb = 0, kind = 0, history = 0, ttl = 0, [0] = 0, 0, 0, 0 }
  p.unit, p.capacity, p.step, p.drain, p.heal, p.cost, p.count, p.ceiling, p.now, p.anchor, p.block, p.partial,
    p.verb, p.kind, p.history, p.ttl, p[0], p[1], p[2], p[3], p.made, p.level, p.returned, p.entry, p.late, p.most =
    unpack('<dddddddddddddddddddddddddd', packed, asked)
  p.partial, p.late = p.partial == 1, p.late == 1
  params[asked] = p
  return p
end

if not rest then -- without plain.lua, all are
  rest = {}
  local pos = runs
  while pos <= #packed do
    local op = { at = #rest + 1 }
    op.asked, op.ops, op.group, op.log, op.note, pos = unpack(RUN, packed, pos)
    rest[op.at] = op
  end
end
for _, op in ipairs(rest) do
  op.p = params[op.asked] or read(op.asked)
  op.key = KEYS[op.at]
  op.clock = op.p.now > 0 and op.p.now or store_clock
end
