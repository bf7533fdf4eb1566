// What every part of the page uses: the data, elements, numbers for people, colours.
const DATA = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

function element(name, attributes = {}, text = "") {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== "") made.textContent = text;
  return made;
}

function drawn(parent, name, attributes, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== "") made.textContent = text;
  parent.appendChild(made);
  return made;
}

// Three digits, thousands separated; whole numbers as they are.
function human(value) {
  if (value === null || !Number.isFinite(value)) return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en");
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value) || 1)));
  return value.toLocaleString("en", { minimumFractionDigits: Math.min(digits, 6), maximumFractionDigits: Math.min(digits, 6) });
}

const times = (value) => (Number.isFinite(value) ? `${value.toFixed(value < 100 ? 2 : 0)}×` : "∞");

function bytes(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let index = 0;
  while (count >= 1000 && index < units.length - 1) { count /= 1000; index += 1; }
  return `${human(index ? count : Math.round(count))} ${units[index]}`;
}

// Reads numeric inputs against their own min and max; null (and a message) when one is unusable.
function readNumbers(ids, errorId) {
  const values = {};
  let wrong = "";
  for (const id of ids) {
    const input = byId(id);
    const value = input.value.trim() === "" ? NaN : Number(input.value);
    const low = input.min === "" ? -Infinity : Number(input.min);
    const high = input.max === "" ? Infinity : Number(input.max);
    const good = Number.isFinite(value) && value >= low && value <= high && (input.step !== "1" || Number.isInteger(value));
    input.setAttribute("aria-invalid", good ? "false" : "true");
    if (!good && !wrong) wrong = `${input.closest("label").firstChild.textContent.trim()}: give a number from ${human(low)} to ${human(high)}.`;
    values[id.split("-")[1]] = value;
  }
  byId(errorId).textContent = wrong;
  return wrong ? null : values;
}

function listen(ids, action) {
  for (const id of ids) byId(id).addEventListener("input", action);
}

function fillRows(table, rows) {
  const body = table.tBodies[0];
  body.replaceChildren();
  for (const [label, ...values] of rows) {
    const line = body.insertRow();
    line.appendChild(element("th", { scope: "row" }, label));
    for (const value of values) line.appendChild(element("td", { class: "n" }, value));
  }
}

const theme = byId("theme");
function paint(choice) {
  if (choice === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice;
}
try {
  theme.value = localStorage.getItem("theme") || "auto";
} catch (error) {
  theme.value = "auto"; // a page opened from a file may have no storage
}
paint(theme.value);
theme.addEventListener("change", () => {
  paint(theme.value);
  try { localStorage.setItem("theme", theme.value); } catch (error) { /* as above */ }
});
byId("jump").addEventListener("change", (event) => {
  const target = event.target.value && byId(event.target.value);
  if (target) { target.scrollIntoView(); target.querySelector(".scroll").focus({ preventScroll: true }); }
});
