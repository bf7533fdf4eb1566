// Sorting, moving about with arrow keys, and saving as CSV.
const collator = new Intl.Collator("en", { numeric: true });

function compare(one, other) {
  if (one === "" || other === "") return one === other ? 0 : one === "" ? 1 : -1;
  const [x, y] = [Number(one), Number(other)];
  return Number.isNaN(x) || Number.isNaN(y) ? collator.compare(one, other) : x - y;
}

const keyOf = (row, column) => row.cells[column].dataset.s ?? row.cells[column].textContent;

function sortTable(table, heading) {
  const column = heading.cellIndex;
  const before = heading.getAttribute("aria-sort");
  const next = before === "ascending" ? "descending" : before === "descending" ? null : "ascending";
  for (const other of heading.parentElement.cells) other.removeAttribute("aria-sort");
  const rows = [...table.tBodies[0].rows];
  if (next === null) rows.sort((a, b) => a.dataset.at - b.dataset.at);
  else {
    heading.setAttribute("aria-sort", next);
    const sign = next === "ascending" ? 1 : -1;
    rows.sort((a, b) => {
      const [x, y] = [keyOf(a, column), keyOf(b, column)];
      const order = compare(x, y); // what is missing stays last whichever way
      return x === "" || y === "" ? order : sign * order || a.dataset.at - b.dataset.at;
    });
  }
  table.tBodies[0].append(...rows);
}

// One Tab stop a table: the arrows move the stop among its numbers.
function enter(button) {
  for (const other of button.closest("table").querySelectorAll('.v[tabindex="0"]')) other.tabIndex = -1;
  button.tabIndex = 0;
}

function neighbour(place, key) {
  const row = place.parentElement;
  const rows = [...row.parentElement.rows];
  const at = rows.indexOf(row);
  const column = place.cellIndex;
  const across = (cells) => cells.map((cell) => cell.querySelector(".v")).find(Boolean);
  if (key === "ArrowRight") return across([...row.cells].slice(column + 1));
  if (key === "ArrowLeft") return across([...row.cells].slice(0, column).reverse());
  if (key === "ArrowDown") return across(rows.slice(at + 1).map((other) => other.cells[column]));
  if (key === "ArrowUp") return across(rows.slice(0, at).reverse().map((other) => other.cells[column]));
  if (key === "Home") return across([...row.cells]);
  if (key === "End") return across([...row.cells].reverse());
  return undefined;
}

function csvOf(table) {
  const groups = table.tHead.rows.length > 1 ? [...table.tHead.rows[0].cells].flatMap((cell) => Array(cell.colSpan).fill(cell.textContent.trim())) : [];
  const titles = [...table.tHead.rows[table.tHead.rows.length - 1].cells].map((cell, index) => [groups[index], cell.textContent.trim()].filter(Boolean).join(", "));
  const text = (cell) => (cell.querySelector(".v")?.firstChild ?? cell).textContent.trim();
  const lines = [titles, ...[...table.tBodies[0].rows].map((row) => [...row.cells].map(text))];
  return lines.map((line) => line.map((value) => `"${value.replaceAll('"', '""')}"`).join(",")).join("\r\n") + "\r\n";
}

for (const table of document.querySelectorAll("table[data-sortable]")) {
  [...table.tBodies[0].rows].forEach((row, index) => { row.dataset.at = index; });
  const first = table.querySelector(".v");
  if (first) first.tabIndex = 0;
}
// A wide table's labels stay in sight while its numbers scroll, where they leave room for them.
function pin(table) {
  const titles = table.tHead.rows[table.tHead.rows.length - 1].cells;
  const first = table.tBodies[0].rows[0];
  const labels = first ? [...first.cells].filter((cell) => cell.classList.contains("label")).length : 0;
  const lefts = [];
  let width = 0;
  for (let index = 0; index < labels; index += 1) {
    lefts.push(width);
    width += titles[index].getBoundingClientRect().width;
  }
  table.style.setProperty("--pinned", `${width}px`);
  table.classList.toggle("pinned", width < 0.45 * table.parentElement.clientWidth);
  for (const row of [...table.tHead.rows, ...table.tBodies[0].rows]) {
    for (let index = 0; index < labels && row.cells[index].colSpan === 1; index += 1) row.cells[index].style.left = `${lefts[index]}px`;
  }
}
// Which boxes hold more than they show, and whether some of it is still to the right.
function hint(box) {
  box.classList.toggle("sideways", box.scrollWidth > box.clientWidth);
  box.classList.toggle("more", box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
}
const pinAll = () => document.querySelectorAll("table[data-table]").forEach((table) => { pin(table); hint(table.parentElement); });
pinAll();
addEventListener("resize", pinAll);
document.querySelectorAll(".scroll").forEach((box) => box.addEventListener("scroll", () => hint(box), { passive: true }));
document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.classList.contains("sort")) sortTable(button.closest("table"), button.closest("th"));
  else if (button.classList.contains("v")) enter(button);
  else if (button.classList.contains("csv")) {
    const data = new Blob([csvOf(button.closest(".tablebox").querySelector("table"))], { type: "text/csv" });
    const link = element("a", { href: URL.createObjectURL(data), download: button.dataset.name });
    link.click();
    URL.revokeObjectURL(link.href);
  }
});
document.addEventListener("keydown", (event) => {
  const button = event.target.closest?.("button.v");
  const next = button && neighbour(button.closest("td"), event.key);
  if (!next) return;
  event.preventDefault();
  enter(next);
  next.focus();
});
