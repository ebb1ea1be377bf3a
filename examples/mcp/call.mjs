// Calls the tool of a server three times, by the official client, and prints what an agent reads.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

const client = new Client({ name: "agent", version: "1" });
await client.connect(new StdioClientTransport({ command: process.execPath, args: process.argv.slice(2), env: process.env }));
for (let i = 0; i < 3; i++) {
	const result = await client.callTool({ name: "search", arguments: { text: "tea" } });
	console.log(result.isError ?? false, result.content[0].text);
}
await client.close();
