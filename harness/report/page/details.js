// The dialog behind each number: where it comes from, its cells, their commands and hardware.
const dialog = byId("detail");

function pairs(parent, entries) {
  const list = element("dl");
  for (const [name, value, code] of entries) {
    if (value === "") continue;
    list.appendChild(element("dt", {}, name));
    const held = element("dd");
    held.appendChild(code ? element("code", {}, value) : document.createTextNode(value));
    list.appendChild(held);
  }
  parent.appendChild(list);
}

function describeCell(cell) {
  const box = element("div", { class: "cell" });
  pairs(box, [
    ["cell", cell.id, true],
    ["system", cell.system],
    ["model", cell.model],
    ["served", cell.workload],
    ["engine", cell.engine],
    ["hardware", cell.hardware],
    ["software", cell.software],
    ["command", cell.command, true],
    ["not valid", cell.valid ? "" : cell.reasons.join("; ")],
  ]);
  return box;
}

function showDetail(button) {
  const place = button.closest("td");
  const table = button.closest("table");
  const detail = DATA.details[Number(table.dataset.table)][Number(button.dataset.d)];
  const heads = table.tHead.rows[table.tHead.rows.length - 1].cells;
  const labels = [...place.parentElement.querySelectorAll(".label")];
  const row = labels.map((label) => (labels.length > 1 ? `${heads[label.cellIndex].textContent.trim()} ` : "") + label.textContent).join(", ");
  byId("detail-h").textContent = `${row}: ${heads[place.cellIndex].textContent.trim()}`;
  const body = byId("detail-body");
  body.replaceChildren();
  const about = element("div", { class: "cell" });
  if (detail.cells) {
    const runs = `${detail.runs} run${detail.runs === 1 ? "" : "s"}`;
    const spread = detail.runs > 1 ? `${human(detail.low)} to ${human(detail.high)}, 95% bootstrap over ${runs}` : `${runs}: no spread is known`;
    pairs(about, [["value", `${human(detail.value)} ${detail.unit === "x" ? "×" : detail.unit}`], ["interval", spread], ["column", detail.from]]);
    body.appendChild(about);
    for (const index of detail.cells) body.appendChild(describeCell(DATA.cells[index]));
  } else {
    const value = button.firstChild.textContent;
    pairs(about, [["value", value], ["column", detail.from], [value === "–" ? "reason" : "source", detail.text], ["hardware", detail.hardware || ""]]);
    body.appendChild(about);
  }
  dialog.showModal();
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button.v");
  if (button) showDetail(button);
  else if (event.target === dialog) dialog.close();
});
