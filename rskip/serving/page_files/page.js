"use strict";

const find = (id) => document.getElementById(id);
const status = find("status");
let models = [];

function element(name, text, properties = {}) {
  const made = Object.assign(document.createElement(name), properties);
  if (text !== undefined) made.textContent = text;
  return made;
}

function say(text, isError = false) {
  status.textContent = text;
  status.classList.toggle("error", isError);
}

async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (find("key").value) headers.Authorization = `Bearer ${find("key").value}`;
  let answer;
  try {
    answer = await fetch(path, { ...options, headers });
  } catch (error) {
    throw error.name === "AbortError" ? error : new Error("The server does not answer.");
  }
  const content = await answer.json().catch(() => ({ error: `The server answered with status ${answer.status}.` }));
  if (!answer.ok) throw new Error(content.error);
  return content;
}

function fill(select, options, chosen) {
  select.replaceChildren(...options.map(([value, text]) => element("option", text, { value })));
  if (options.some(([value]) => value === chosen)) select.value = chosen;
}

// The languages, by their codes, that the chosen model translates from, or to from the chosen source.
function languages(side) {
  const source = find("source").value;
  const fitting = models.filter(({ id, sources }) => [id, ""].includes(find("model").value)
    && (side === "sources" || source === "auto" || sources.some(({ code }) => code === source)));
  const found = fitting.flatMap((each) => each[side]).map(({ code, name }) => [code, name]);
  return [...new Map(found)].filter(([code]) => side === "sources" || code !== source).sort((a, b) => a[1].localeCompare(b[1]));
}

function showTargets() {
  fill(find("target"), languages("targets"), find("target").value);
}

function showLanguages() {
  fill(find("source"), [["auto", "Detect language"], ...languages("sources")], find("source").value || "auto");
  showTargets();
}

async function loadModels() {
  try {
    models = (await ask("v1/models")).data;
  } catch (error) {
    say(error.message, true);
    find("key-box").open = true;
    return;
  }
  const named = ({ id, connection }) => [id, connection ? `${id} (${connection})` : id];
  fill(find("model"), [["", "The first one that fits"], ...models.map(named)]);
  find("form").hidden = find("details").hidden = false;
  showLanguages();
  find("target").value = models[0].targets.at(-1).code;
  say(models.length === 1 ? "One model is served." : `${models.length} models are served.`);
}

// Words of subword tokens, each with the numbers of its tokens.
function words(tokens) {
  const spaced = tokens.some((token) => token.startsWith("\u2581"));
  const found = [];
  let open = false;
  tokens.forEach((token, number) => {
    if (!(spaced ? !token.startsWith("\u2581") && found.length : open)) found.push({ text: "", numbers: [] });
    const word = found.at(-1);
    word.text += token.replace(/^\u2581/, "").replace(/@@$/, "");
    word.numbers.push(number);
    open = token.endsWith("@@");
  });
  return found;
}

// Each word of the translation marks the words of the source by its attention, when it has the focus or the pointer.
function drawAttention(sentence, hypothesis) {
  const box = element("div");
  const sources = words(sentence.source_tokens);
  const spans = sources.map(({ text }) => element("span", text));
  const told = element("p", "Choose a word of the translation to see its attention.", { className: "hint" });
  told.setAttribute("aria-live", "polite");
  const buttons = words(hypothesis.tokens).map((word) => {
    const button = element("button", word.text, { type: "button" });
    const weights = sources.map(({ numbers }) => {
      const sums = word.numbers.map((row) => numbers.reduce((sum, column) => sum + hypothesis.attention[row][column], 0));
      return sums.reduce((sum, each) => sum + each, 0) / sums.length;
    });
    const mark = () => {
      spans.forEach((span, number) => span.style.setProperty("--weight", weights[number].toFixed(3)));
      const best = weights.map((weight, number) => [weight, sources[number].text]).sort((a, b) => b[0] - a[0]);
      told.textContent = `${word.text}: ${best.slice(0, 3).map(([weight, text]) => `${text} ${Math.round(100 * weight)} %`).join(", ")}`;
    };
    for (const event of ["focus", "pointerenter", "click"]) button.addEventListener(event, mark);
    return button;
  });
  for (const [label, children] of [["Source words", spans], ["Words of the translation", buttons]]) {
    const row = element("div", undefined, { className: "words" });
    row.setAttribute("role", "group");
    row.setAttribute("aria-label", label);
    row.append(...children);
    box.append(row);
  }
  box.append(told);
  return box;
}

function drawSentence(sentence) {
  const box = element("div", undefined, { className: "sentence" });
  box.append(element("h3", sentence.source));
  const [best] = sentence.hypotheses;
  if (best.attention && best.tokens.length) box.append(drawAttention(sentence, best));
  const table = element("table");
  const head = element("tr");
  head.append(element("th", "Score", { scope: "col" }), element("th", "Hypothesis", { scope: "col" }));
  table.append(head);
  for (const { score, text } of sentence.hypotheses) {
    const row = element("tr");
    row.append(element("td", score.toFixed(3), { className: "score" }), element("td", text));
    table.append(row);
  }
  box.append(table, ...sentence.notes.map((note) => element("p", note, { className: "note" })));
  return box;
}

const nameOf = (code) => new Map(models.flatMap((each) => [...each.sources, ...each.targets]).map((each) => [each.code, each.name])).get(code) || code;
const chosen = () => ({ target: find("target").value, ...(find("model").value && { model: find("model").value }) });
const post = (path, content) =>
  ask(path, { method: "POST", body: JSON.stringify(content), headers: { "Content-Type": "application/json" }, signal: running.signal });
let running = new AbortController();
let waiting = 0;

async function translate() {
  clearTimeout(waiting);
  running.abort(); // the server stops computing
  running = new AbortController();
  const { signal } = running;
  const text = find("text").value;
  say(text.trim() ? "Translating…" : "");
  try {
    let source = find("source").value;
    const found = text.trim() ? await post("translate", { q: text, source, ...chosen() }) : { translatedText: "" };
    find("translation").value = found.translatedText;
    find("copy").disabled = !found.translatedText;
    find("detected").textContent = found.detectedLanguage ? `Detected: ${nameOf(found.detectedLanguage.language)}` : "";
    find("sentences").replaceChildren();
    source = found.detectedLanguage?.language ?? source;
    if (text.trim() && source === find("target").value) say(`The text is in ${nameOf(source)} already.`);
    else if (text.trim() && find("details").open) await explain(text, source);
    else say(text.trim() ? "Translated." : "");
  } catch (error) {
    if (!signal.aborted) say(error.message, true);
  }
}

// The sentences with scores, hypotheses and attention.
async function explain(text, source) {
  const asked = { text, source, ...chosen(), nbest: Number(find("nbest").value) || 1, split: true, attention: true };
  const { model, translations: [{ sentences }] } = await post("v1/translate", asked);
  const { connection } = models.find(({ id }) => id === model);
  const used = `Translated by ${model}${connection ? `, with the connection ${connection}` : ""}.`;
  find("sentences").replaceChildren(element("p", used, { className: "note" }), ...sentences.map(drawSentence));
  say(sentences.length === 1 ? "Translated one sentence." : `Translated ${sentences.length} sentences.`);
}

function translateSoon() {
  clearTimeout(waiting);
  waiting = setTimeout(translate, 600);
}

find("form").addEventListener("submit", (event) => { event.preventDefault(); translate(); });
find("text").addEventListener("input", translateSoon);
find("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) translate();
});
find("copy").addEventListener("click", async () => {
  find("translation").select();
  try {
    await navigator.clipboard.writeText(find("translation").value);
  } catch { // a page without TLS that isn't on this machine
    document.execCommand("copy");
  }
  say("Copied.");
});
find("model").addEventListener("change", () => { showLanguages(); translate(); });
find("source").addEventListener("change", () => { showTargets(); translate(); });
for (const id of ["target", "nbest"]) find(id).addEventListener("change", translate);
find("details").addEventListener("toggle", () => { if (find("details").open) translate(); });
find("key").addEventListener("change", loadModels);
loadModels();
