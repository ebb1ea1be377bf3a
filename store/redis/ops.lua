-- The ops that are left to decide, from rest. What is asked holds a
-- limit, p, and what an op says of it; ops who ask the same share it.

local params = {}
local function read(asked)
  local p = { {each ask: * = 0} }
  {each ask: p.*} = unpack('<{ask.width * d}', packed, asked)
  p.partial, p.deferred = p.partial == 1, p.deferred == 1
  params[asked] = p
  return p
end

if not rest then -- without groups.lua, all are
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
  op.key = op.key or KEYS[op.at]
  op.clock = op.p.now > 0 and op.p.now or store_clock
end
