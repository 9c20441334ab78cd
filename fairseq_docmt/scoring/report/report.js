// Browser of documents: draws a document when it is opened, and filters sentences.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const get = id => document.getElementById(id);
const make = (tag, text, kind) => {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (kind) element.className = kind;
  return element;
};
const KINDS = ["", "off", "changed", "off changed"];
const textOf = cell => typeof cell === "string" ? cell : cell.map(run => run[0]).join("");

// Sentence: [source or null, references, systems, tags, whether all systems agree].
const shownSystems = () => data.systems.map((name, n) => get("system-" + n).checked);
const matching = () => {
  const words = get("words").value.toLowerCase(), tag = get("tag").value;
  const differing = get("differing").checked, systems = shownSystems();
  return ([source, references, cells, tags, same]) =>
    !(differing && same) && (!tag || tags.includes(tag)) &&
    (!words || [source || "", ...references, ...cells.filter((c, n) => systems[n]).map(textOf)]
      .some(text => text.toLowerCase().includes(words)));
};

const cellOf = content => {
  const cell = make("td");
  cell.dir = "auto";
  if (content === "") cell.append(make("span", "empty", "empty"));
  else if (typeof content === "string") cell.textContent = content;
  else for (const [text, kind] of content)
    cell.append(kind ? make("span", text, KINDS[kind]) : text);
  return cell;
};

const counted = (number, thing) => `${number} ${thing}${number === 1 ? "" : "s"}`;

const tableOf = (sentences, keep) => {
  const table = make("table", undefined, "texts"), head = make("tr"), body = make("tbody");
  const systems = shownSystems();
  head.append(make("th", "", "place"));
  if (data.source) head.append(make("th", "source"));
  for (const name of data.references) head.append(make("th", name));
  data.systems.forEach((name, n) => systems[n] && head.append(make("th", name)));
  sentences.forEach((sentence) => {
    if (!keep(sentence)) return;
    const [source, references, cells, tags, , number] = sentence, row = make("tr");
    const place = make("td", number, "place");
    if (tags.length) place.title = tags.join(", ");
    row.append(place);
    if (data.source) {
      const cell = make("td", source);
      cell.dir = "auto";
      row.append(cell);
    }
    for (const text of references) {
      const cell = make("td", text);
      cell.dir = "auto";
      row.append(cell);
    }
    cells.forEach((content, n) => systems[n] && row.append(cellOf(content)));
    body.append(row);
  });
  const top = make("thead");
  top.append(head);
  table.append(top, body);
  return table;
};

const draw = () => {
  const keep = matching(), chosen = get("document").value, systems = shownSystems();
  const list = get("documents"), drawn = document.createDocumentFragment();
  let documents = 0, sentences = 0;
  data.documents.forEach(({name, bleu, sentences: all}, number) => {
    if (chosen !== "" && Number(chosen) !== number) return;
    const count = all.filter(keep).length;
    if (!count) return;
    documents += 1;
    sentences += count;
    const details = make("details"), summary = make("summary");
    const size = count === all.length ? counted(count, "sentence")
      : `${count} of ${counted(all.length, "sentence")}`;
    summary.append(`Document ${name}, ${size}, d-BLEU: `);
    data.systems.forEach((system, n) =>
      systems[n] && summary.append(make("span", `${system} ${bleu[n].toFixed(1)}`)));
    details.append(summary);
    const open = () => details.children.length > 1 || details.append(tableOf(all, keep));
    details.addEventListener("toggle", () => details.open && open());
    if (documents === 1) {
      details.open = true;
      open();
    }
    drawn.append(details);
  });
  list.replaceChildren(drawn);
  get("count").textContent = `${counted(documents, "document")}, ${counted(sentences, "sentence")} shown`;
};

for (const id of ["document", "tag", "differing"]) get(id).addEventListener("change", draw);
data.systems.forEach((name, n) => get("system-" + n).addEventListener("change", draw));
let waiting;
get("words").addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(draw, 200);
});
draw();
