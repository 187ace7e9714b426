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
  } catch {
    throw new Error("The server does not answer.");
  }
  const content = await answer.json().catch(() => ({ error: `The server answered with status ${answer.status}.` }));
  if (!answer.ok) throw new Error(content.error);
  return content;
}

function fill(select, options, chosen) {
  select.replaceChildren(...options.map(([value, text]) => element("option", text, { value })));
  if (options.some(([value]) => value === chosen)) select.value = chosen;
}

const chosenModel = () => models.find((each) => each.id === find("model").value);

function showLanguages() {
  const { sources, targets } = chosenModel();
  for (const [id, languages, chosen] of [["source", sources, sources[0].code], ["target", targets, targets.at(-1).code]])
    fill(find(id), languages.map(({ code, name }) => [code, name]), chosen);
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
  fill(find("model"), models.map(named));
  find("text-part").hidden = false;
  showLanguages();
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

async function translate(event) {
  event.preventDefault();
  say("Translating…");
  const asked = {
    text: find("text").value, model: chosenModel().id, source: find("source").value, target: find("target").value,
    nbest: Number(find("nbest").value) || 1, split: true, attention: true,
  };
  try {
    const body = JSON.stringify(asked);
    const [found] = (await ask("v1/translate", { method: "POST", body, headers: { "Content-Type": "application/json" } })).translations;
    find("translation").value = found.text;
    find("sentences").replaceChildren(...found.sentences.map(drawSentence));
    say(found.sentences.length === 1 ? "Translated one sentence." : `Translated ${found.sentences.length} sentences.`);
  } catch (error) {
    say(error.message, true);
  }
}

find("text-form").addEventListener("submit", translate);
find("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) find("text-form").requestSubmit();
});
find("model").addEventListener("change", showLanguages);
find("key").addEventListener("change", loadModels);
loadModels();
