const OpenAI = require("openai");
const { createOpenAI } = require("@ai-sdk/openai");
const { generateText, streamText, tool, stepCountIs } = require("ai");
const { z } = require("zod");

const baseURL = process.env.PALAVER_URL, apiKey = process.env.PALAVER_KEY;
const told = {};

async function openaiClient() {
  const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
  const model = "palaver";
  const runner = client.chat.completions.stream({ model, messages: [{ role: "user", content: "a b c" }] });
  const message = await runner.finalMessage();
  told.chat = [message.role, message.content];
  const first = await client.responses.create({ model, input: "one" });
  const second = await client.responses.create({ model, input: "two", previous_response_id: first.id });
  told.responses = [first.output_text, second.output_text];
  const stream = client.responses.stream({ model, input: "d e f" });
  told.stream = (await stream.finalResponse()).output_text;
  told.refused = await client.responses.create({ model: "gpt", input: "x" }).catch((error) => error.status);
}

async function vercel() {
  const provider = createOpenAI({ baseURL, apiKey });
  const weather = tool({
    description: "How the weather is",
    inputSchema: z.object({ where: z.string() }),
    execute: async ({ where }) => `rain in ${where}`,
  });
  for (const [name, model] of [["responses", provider("palaver")], ["chat", provider.chat("palaver")]]) {
    const messages = [{ role: "user", content: `!use weather {"where": "${name}"}` }];
    const used = await generateText({ model, messages, tools: { weather }, stopWhen: stepCountIs(3), maxRetries: 0 });
    messages.push(...used.response.messages, { role: "user", content: "thanks" });
    const grown = streamText({ model, messages, maxRetries: 0 });
    told[`vercel ${name}`] = [used.text, await grown.text];
  }
}

openaiClient().then(vercel).then(() => console.log(JSON.stringify(told)));
