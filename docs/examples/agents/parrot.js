// A complete agent for Palaver in JavaScript: says back what it heard, word by word, and knows where to look things up.
// agent: {name: program, command: [node, parrot.js], folder: ~/agents}
const lines = require("node:readline").createInterface({ input: process.stdin });
const turns = new Map();

const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");

// Asks the gateway for something and waits for what it says to it.
const ask = (turn, line) => new Promise((heard) => {
  turn.heard = heard;
  say({ id: turn.id, ...line });
});

async function answer(request, turn) {
  // In ⟦brackets⟧ stands what the gateway has to say, such as the time.
  const last = request.messages.findLast((message) => message.role === "user");
  const said = last.text.replace(/⟦[^⟧]*⟧/g, "").trim();
  const [order, ...rest] = said.split(" ");
  let text = `Polly says: ${said}`;
  if (order === "!look" && request.tools.some((tool) => tool.name === "search")) {
    const call = { id: `look_${request.turn}`, name: "search", arguments: JSON.stringify({ query: rest.join(" ") }) };
    text = `Polly found: ${(await ask(turn, { type: "use", call })).text}`;
  }
  for (const word of text.match(/\S+\s*/g)) {
    if (!turns.has(turn.id)) return;
    say({ type: "delta", id: turn.id, text: word });
    await new Promise(setImmediate);
  }
  say({ type: "usage", id: turn.id, model: "parrot", input_tokens: said.length, output_tokens: text.length });
  say({ type: "final", id: turn.id, text });
  turns.delete(turn.id);
}

lines.on("line", (text) => {
  const line = JSON.parse(text);
  switch (line.type) {
    case "answer":
      turns.set(line.id, { id: line.id });
      answer(line, turns.get(line.id));
      break;
    case "cancel":
      if (turns.delete(line.id)) say({ type: "failure", id: line.id, kind: "fatal", detail: "stopped" });
      break;
    default:
      turns.get(line.id)?.heard?.(line);
  }
});
lines.on("close", () => process.exit(0));

say({ type: "hello", protocol: 1, at_once: 100 });
