// A server of the Model Context Protocol whose tools are limited for each caller: in TypeScript, with the official SDK. The
// counts are in headgate serve, at HEADGATE_SERVER, so that any number of servers share them.
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import type { CallToolResult } from "@modelcontextprotocol/sdk/types.js";
import { z } from "zod";

const headgate = process.env.HEADGATE_SERVER ?? "http://localhost:8080";
// Over stdio each caller has a process of its own. Over HTTP it is extra.authInfo.clientId in the place of this.
const caller = process.env.CALLER ?? "stdio";

// take charges one unit of a limit to a key. A decision has status 200 whether it allows or refuses.
async function take(limit: string, key: string) {
	const response = await fetch(`${headgate}/v1/take`, {
		method: "POST", body: JSON.stringify({ limit, key }), signal: AbortSignal.timeout(5000),
	});
	const body = await response.json();
	if (!response.ok) throw new Error(body.detail ?? body.title); // nothing is known to be charged
	return body as { allowed: boolean; capacity: number; remaining: number; retry_after_ms: number | null };
}

// limited makes a tool that refuses in words which a model can read: how much is left, and when to come back.
function limited<A>(name: string, limit: string, tool: (args: A) => Promise<CallToolResult>) {
	return async (args: A): Promise<CallToolResult> => {
		const d = await take(limit, `${name}:${caller}`);
		if (d.allowed) return tool(args);
		const when = d.retry_after_ms === null ? "again" : `again before ${Math.ceil(d.retry_after_ms / 1000)} s have passed`;
		const text = `Rate limit: ${name} allows ${d.capacity} calls, ${d.remaining} are left. Do not call it ${when}.`;
		return { isError: true, content: [{ type: "text", text }] };
	};
}

const server = new McpServer({ name: "shop", version: "1" });
server.registerTool("search", { description: "finds goods", inputSchema: { text: z.string() } },
	limited("search", "sliding-log 2/1m", async ({ text }: { text: string }) => ({
		content: [{ type: "text", text: `found ${text}` }],
	})));
await server.connect(new StdioServerTransport());
