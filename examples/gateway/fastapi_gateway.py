"""A gateway in front of OpenAI or Anthropic that keeps budgets, with FastAPI: each call is charged before it is made, and
settled at the usage that the model reports, also at the end of a stream. Run it with uvicorn; headgate.py and
headgate_asyncio.py stand beside it."""
import asyncio
import hashlib
import json
import math
import os
import uuid

import fastapi
import fastapi.responses
import headgate_asyncio
import httpx

limits = headgate_asyncio.Client(os.environ.get("HEADGATE_SERVER", "http://localhost:8080"))
model = httpx.AsyncClient(base_url=os.environ.get("MODEL_URL", "https://api.openai.com"), timeout=600)
app = fastapi.FastAPI()


def usage_in(text):
    event = json.loads(text) if '"usage"' in text else {}
    return event.get("usage") or event.get("message", {}).get("usage") or {}


@app.post("/v1/chat/completions")
@app.post("/v1/messages")
async def call(request: fastapi.Request):
    body, headers = await request.json(), dict(request.headers)
    secret = headers.get("x-api-key") or headers.get("authorization", "")
    key, id = hashlib.sha256(secret.encode()).hexdigest()[:16], str(uuid.uuid4())
    charges = [{"limit": "tokens", "key": key, "count": "tokens"}, {"limit": "usd", "key": "all", "count": "money"}]

    async def ask(verb, usage):
        charge = {"id": id, "model": body["model"], "usage": usage, "charges": charges}
        return await limits.call("POST", "/v1/" + verb, charge)
    most = max(body.get("max_tokens") or 0, body.get("max_completion_tokens") or 0)
    if not most:
        most = body["max_tokens"] = 1024
    # A token has a byte or more, and each of n answers may have most tokens.
    estimate = {"input_tokens": len(json.dumps(body)), "output_tokens": most * (body.get("n") or 1)}
    d = await ask("take", estimate)
    if not d["allowed"]:  # clients wait for up to a minute by themselves
        wait = d["retry_after_ms"]
        out = {"x-ratelimit-limit": str(d["capacity"]), "x-ratelimit-remaining": str(d["remaining"])}
        out.update({"x-should-retry": "false"} if wait is None or wait > 60_000 else
                   {"retry-after": str(math.ceil(wait / 1000)), "retry-after-ms": str(wait)})
        error = {"type": "rate_limit_error", "message": "over the limit " + d["limit"]}
        return fastapi.responses.JSONResponse({"error": error}, 429, out)
    if body.get("stream") and request.url.path.endswith("completions"):
        body["stream_options"] = {"include_usage": True}
    kept = {k: v for k, v in headers.items() if k in ("authorization", "x-api-key", "anthropic-version")}
    answer = await model.send(model.build_request("POST", request.url.path, json=body, headers=kept), stream=True)

    async def settle(usage):
        await answer.aclose()
        await ask("settle", usage or (estimate if answer.is_success else {"input_tokens": 0, "output_tokens": 0}))

    async def relay():
        usage, rest, stream = {}, "", answer.headers["content-type"].startswith("text/event-stream")
        try:
            async for text in answer.aiter_text():
                yield text
                *lines, rest = (rest + text).split("\n") if stream else [rest + text]
                for line in lines:
                    usage.update(usage_in(line.removeprefix("data: ")))
            usage.update(usage_in(rest))
        finally:  # a client that has left pays the estimate, unless the usage has come
            await asyncio.shield(settle(usage))
    return fastapi.responses.StreamingResponse(relay(), answer.status_code, media_type=answer.headers["content-type"])
