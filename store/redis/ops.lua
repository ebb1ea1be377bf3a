-- The ops: ARGV go on with the limits and the ops, see call in script.go; what is
-- a script's own comes after them.

local params, ops = {}, {}
for i = 1, arg() do
  params[i] = {
    kind = arg(), anchor = arg(), unit = arg(), capacity = arg(), step = arg(),
    drain = arg(), block = arg(), history = arg(), heal = arg(),
  }
end
for i = 1, arg() do
  local op = {
    verb = arg(), group = arg(), cell = arg(), p = params[arg()], cost = arg(), count = arg(),
    partial = arg() == 1, ceiling = arg(), ttl = arg(), now = arg(),
  }
  op[0], op[1], op[2], op[3] = arg(), arg(), arg(), arg()
  if op.verb == 3 then op.ends, op.returned, op.entry = arg(), arg(), arg() end
  op.note = ARGV[next_arg]
  next_arg = next_arg + 1
  ops[i] = op
end

