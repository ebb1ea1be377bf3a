// Calls a gateway by the official clients, many streams at once, until the budget refuses: streams.mjs URL CALLERS
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const [, , url, callers] = process.argv, words = { role: "user", content: "Tell me a story." }, max_tokens = 2100;
let answers = 0;

async function call(i) {
	if (i % 2 === 0) {
		const client = new OpenAI({ apiKey: `key-${i}`, baseURL: `${url}/v1` });
		const stream = await client.chat.completions.create({ model: "gpt-5-mini", max_tokens, messages: [words], stream: true });
		for await (const _ of stream);
	} else {
		const client = new Anthropic({ apiKey: `key-${i}`, baseURL: url });
		await client.messages.stream({ model: "claude-sonnet-4", max_tokens, messages: [words] }).finalText();
	}
}

async function repeat(i) {
	for (;;) {
		try {
			await call(i);
		} catch (error) {
			if (error.status === 429) return;
			throw error;
		}
		answers++;
	}
}
await Promise.all(Array.from({ length: Number(callers) }, (_, i) => repeat(i)));
console.log("answers:", answers);
