// The layout explorer: one pool of pages against a HOT pool of slabs and a COLD pool of tokens.
const L_IDS = ["l-b", "l-suffix", "l-slots", "l-fp"];
const CLASSES = ["#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#0072B2", "#F0E442", "#8c6bb1"];
const BINS = 240;

function readLengths() {
  const input = byId("l-lengths");
  const parts = input.value.split(/[\s,;/]+/).filter(Boolean).map(Number);
  const good = parts.length > 0 && parts.length <= 64 && parts.every((n) => Number.isInteger(n) && n > 0 && n <= 1e6);
  input.setAttribute("aria-invalid", good ? "false" : "true");
  if (!good) byId("l-error").textContent = "Prefix lengths: give 1 to 64 whole numbers of tokens, such as 2048, 4096.";
  return good ? parts : null;
}

// First fit in order of arrival, as the bump pointer of §3.2 places slabs in an empty pool.
function placeSlabs(lengths, hot) {
  let next = 0;
  return lengths.map((length) => {
    if (next + length > hot) return null;
    const base = next;
    next += length;
    return base;
  });
}

function layoutNumbers(lengths, { b, suffix, slots, fp }, page, model) {
  const pages = (tokens) => Math.ceil(tokens / page) * page;
  const rows = lengths.map((_, index) => Math.floor(b / lengths.length) + (index < b % lengths.length ? 1 : 0));
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const hot = Math.round(slots * fp);
  const bases = placeSlabs(lengths, hot);
  const perToken = 2 * (model.kv_heads / model.tp) * model.head_dim * 2;
  const byRows = sum(lengths.map((length, index) => length * rows[index]));
  const once = sum(lengths.map((length, index) => (bases[index] === null ? length * rows[index] : length)));
  return {
    rows, hot, bases, perToken,
    paged: { used: sum(lengths.map(pages)) + b * pages(suffix), waste: sum(lengths.map(pages)) - sum(lengths) + b * (pages(suffix) - suffix), prefix: byRows, read: byRows + b * suffix },
    split: { used: sum(lengths) + b * suffix, waste: 0, prefix: once, read: once + b * suffix },
  };
}

// A fixed shuffle, so that a picture of scattered pages is the same every time.
function shuffled(count) {
  const order = [...Array(count).keys()];
  let state = 12345;
  for (let i = count - 1; i > 0; i -= 1) {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    const j = state % (i + 1);
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}

function scatter(svg, from, to, parts) {
  const count = Math.max(0, to - from);
  const order = shuffled(count);
  let taken = 0;
  for (const [bins, colour] of parts) {
    for (let i = 0; i < bins && taken < count; i += 1, taken += 1) {
      drawn(svg, "rect", { x: (from + order[taken]) * (960 / BINS), y: 0, width: 960 / BINS - 0.5, height: 54, fill: colour });
    }
  }
}

const colourOf = (index) => CLASSES[index % CLASSES.length];

function drawLayouts(lengths, values, found) {
  const bins = (tokens) => Math.max(tokens > 0 ? 1 : 0, Math.round((tokens / values.slots) * BINS));
  const paged = byId("l-paged");
  paged.replaceChildren();
  const suffix = bins(values.b * values.suffix);
  scatter(paged, 0, BINS, [...lengths.map((length, index) => [bins(length), colourOf(index)]), [suffix, "var(--cold)"]]);
  const split = byId("l-hot");
  split.replaceChildren();
  const edge = Math.round((found.hot / values.slots) * BINS);
  drawn(split, "rect", { x: 0, y: 0, width: edge * (960 / BINS), height: 54, fill: "none", stroke: "var(--hot)", "stroke-width": 4 });
  lengths.forEach((length, index) => {
    if (found.bases[index] === null) return;
    const x = (found.bases[index] / values.slots) * 960;
    drawn(split, "rect", { x, y: 3, width: Math.max((length / values.slots) * 960 - 0.5, 1.5), height: 48, fill: colourOf(index) });
  });
  const cold = lengths.map((length, index) => [found.bases[index] === null ? bins(length) : 0, colourOf(index)]);
  scatter(split, edge, BINS, [...cold, [suffix, "var(--cold)"]]);
  const key = byId("l-key");
  key.replaceChildren();
  lengths.slice(0, 8).forEach((length, index) => addKey(key, colourOf(index), `${human(length)} tokens, ${found.rows[index]} requests`));
  if (lengths.length > 8) addKey(key, "transparent", `and ${lengths.length - 8} more`);
  addKey(key, "var(--cold)", "suffixes");
  addKey(key, "var(--free)", "free");
}

function addKey(parent, colour, text) {
  const entry = element("span");
  entry.appendChild(element("span", { class: "swatch", style: `background:${colour}` }));
  entry.appendChild(document.createTextNode(text));
  parent.appendChild(entry);
}

function updateLayout() {
  const values = readNumbers(L_IDS, "l-error");
  const lengths = readLengths();
  if (!values || !lengths) return;
  const page = Number(byId("l-page").value);
  const model = DATA.explore.models[Number(byId("l-model").value)];
  const found = layoutNumbers(lengths, values, page, model);
  drawLayouts(lengths, values, found);
  const admitted = found.bases.filter((base) => base !== null).length;
  const fits = (used) => (used <= values.slots ? "yes" : `no, ${human(used - values.slots)} slots short`);
  fillRows(byId("l-table"), [
    ["Slots in use", human(found.paged.used), human(found.split.used)],
    ["of them empty (part-filled pages)", human(found.paged.waste), human(found.split.waste)],
    ["Batch fits the KV slots", fits(found.paged.used), fits(found.split.used)],
    ["Prefixes in slabs", "0", `${admitted} of ${lengths.length}`],
    ["Prefix tokens read in a step", human(found.paged.prefix), human(found.split.prefix)],
    ["Tokens read in a step", human(found.paged.read), human(found.split.read)],
    ["K and V read in a step, a layer and rank", bytes(found.paged.read * found.perToken), bytes(found.split.read * found.perToken)],
  ]);
  const ratio = found.paged.read / found.split.read;
  const preset = DATA.explore.layouts[Number(byId("l-preset").value)];
  const live = preset.cell ? ` The server of cell ${preset.cell} reported ${human(preset.hot_live)} slots in slabs.` : "";
  byId("l-result").textContent = `HOT holds ${human(found.hot)} slots and takes ${admitted} of ${lengths.length} prefixes; a step reads ${human(ratio)}× fewer tokens.${live}`;
  byId("l-paged-d").textContent = `Paged: prefixes and suffixes lie in scattered pages; ${human(found.paged.read)} tokens are read in a step.`;
  byId("l-hot-d").textContent = `HOT/COLD: ${admitted} slabs in a row in the first ${human(found.hot)} slots, suffixes behind; ${human(found.split.read)} tokens are read in a step.`;
}

function loadLayout() {
  const preset = DATA.explore.layouts[Number(byId("l-preset").value)];
  byId("l-lengths").value = preset.lengths.join(", ");
  byId("l-b").value = preset.b;
  byId("l-slots").value = preset.slots;
  byId("l-fp").value = preset.f_p;
  updateLayout();
}

byId("l-preset").value = String(Math.min(1, DATA.explore.layouts.length - 1));
byId("l-preset").addEventListener("change", loadLayout);
listen([...L_IDS, "l-lengths", "l-page", "l-model"], updateLayout);
loadLayout();
