// Calls a gateway by the official clients, and prints what a program gets: call.mjs URL
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const url = process.argv[2], words = { role: "user", content: "Say ten words." };
const openai = new OpenAI({ apiKey: "key-of-alice", baseURL: `${url}/v1` });
const anthropic = new Anthropic({ apiKey: "key-of-bob", baseURL: url });

const completion = await openai.chat.completions.create({ model: "gpt-5-mini", max_tokens: 100, messages: [words] });
console.log("openai", completion.choices[0].message.content, completion.usage.completion_tokens);
let text = "";
for await (const part of await openai.chat.completions.create({
	model: "gpt-5-mini", max_tokens: 100, messages: [words], stream: true,
})) text += part.choices[0]?.delta.content ?? "";
console.log("openai stream", text);

const message = await anthropic.messages.create({ model: "claude-sonnet-4", max_tokens: 100, messages: [words] });
console.log("anthropic", message.content[0].text, message.usage.output_tokens);
const stream = anthropic.messages.stream({ model: "claude-sonnet-4", max_tokens: 100, messages: [words] });
console.log("anthropic stream", await stream.finalText());

// 100,000 tokens a minute: these never fit, and the client is told not to retry.
for (const size of [{ max_tokens: 200_000 }, { max_completion_tokens: 200_000 }, { max_tokens: 40_000, n: 3 }]) {
	try {
		await openai.chat.completions.create({ model: "gpt-5-mini", messages: [words], ...size });
	} catch (error) {
		console.log("refused", JSON.stringify(size), error.status, error.message, error.headers.get("x-should-retry"));
	}
}
