-- headgate.lua
-- The action lua.headgate asks Headgate whether a request may pass.
local away_passes = false -- while Headgate is away, requests get 503; with true they pass

-- Only these headers leave HAProxy: no Authorization, Cookie or Idempotency-Key of the end user.
local function question(txn)
  local f = txn.f
  return {
    url = "http://localhost/",
    dst = "abns@headgate",
    headers = {
      ["host"] = { "localhost" },
      ["x-forwarded-for"] = { f:src() },
      ["x-forwarded-method"] = { f:method() },
      ["x-forwarded-host"] = { f:req_hdr("host") or "" },
      ["x-forwarded-uri"] = { f:pathq() },
      ["x-forwarded-content-length"] = { f:req_hdr("content-length") or "" },
    },
  }
end

local passed_on = { "ratelimit", "ratelimit-policy", "retry-after", "retry-after-ms", "x-should-retry", "x-ratelimit-limit",
  "x-ratelimit-remaining", "x-ratelimit-reset", "content-type", "cache-control" }

core.register_action("headgate", { "http-req" }, function(txn)
  local res = core.httpclient():get(question(txn)) or {}
  local function header(name)
    local values = res.headers and res.headers[name]
    return values and values[0]
  end
  if res.status == 204 then
    txn:set_var("txn.headgate_left", header("ratelimit") or "")
    txn:set_var("txn.headgate_policy", header("ratelimit-policy") or "")
  elseif res.status and res.status >= 400 and res.status < 500 and res.status ~= 401 then
    local reply = txn:reply { status = res.status, body = res.body }
    for _, name in ipairs(passed_on) do
      local value = header(name)
      if value then reply:add_header(name, value) end
    end
    txn:done(reply)
  elseif not away_passes or res.status == 401 then -- 401: Headgate does not know this proxy, see HEADGATE_TOKEN
    txn:done(txn:reply { status = 503, headers = { ["retry-after"] = { "1" }, ["cache-control"] = { "no-store" } } })
  end
end)
