// The dispatcher's map: M_eff = B · n_q/kv against M_sat of a hardware profile.
const MAP_B = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
const MAP_GROUPS = [1, 2, 3, 4, 5, 6, 7, 8, 12, 16];
const D_IDS = ["d-msat", "d-b", "d-group", "d-k"];

const choose = (m, mSat) => (m >= mSat ? "dense" : "cascade");

function groupNames(group) {
  const names = DATA.explore.models.filter((model) => model.q_heads / model.kv_heads === group).map((model) => model.name.split("/")[0]);
  return names.length ? ` (${names.join(", ")})` : "";
}

function drawMap(mSat, b, group) {
  const map = byId("d-map");
  map.tHead.replaceChildren();
  const head = map.tHead.insertRow();
  head.appendChild(element("th", { scope: "col" }, "n_q/kv"));
  for (const column of MAP_B) head.appendChild(element("th", { scope: "col", class: "n" }, `B = ${human(column)}`));
  const body = map.tBodies[0];
  body.replaceChildren();
  for (const row of MAP_GROUPS) {
    const line = body.insertRow();
    line.appendChild(element("th", { scope: "row" }, `${row}${groupNames(row)}`));
    for (const column of MAP_B) {
      const backend = choose(row * column, mSat);
      const place = element("td", { class: backend, title: backend }, human(row * column));
      place.appendChild(element("span", { class: "hidden" }, ` ${backend}`));
      if (column === b && row === group) place.setAttribute("aria-current", "true");
      line.appendChild(place);
    }
  }
}

function updateDispatch() {
  const profile = DATA.explore.profiles[Number(byId("d-profile").value)];
  const unknown = profile.m_sat === null ? " M_sat of this profile is not fitted: enter one." : "";
  byId("d-source").textContent = `${profile.name}: ${profile.source}`;
  if (byId("d-msat").value === "") {
    byId("d-error").textContent = "";
    byId("d-result").textContent = unknown.trim();
    byId("d-map").tBodies[0].replaceChildren();
    byId("d-map").tHead.replaceChildren();
    return;
  }
  const values = readNumbers(D_IDS, "d-error");
  if (!values) return;
  const m = values.b * values.group;
  drawMap(values.msat, values.b, values.group);
  const sign = m >= values.msat ? "≥" : "<";
  const each = Math.floor(values.b / values.k) * values.group;
  const classes = values.k > 1 ? ` The rule counts the whole batch; each of ${human(values.k)} classes has about ${human(each)} rows, ${choose(each, values.msat)} by itself.` : "";
  const fitted = profile.fitted ? " That is the paper's rule: auto on this profile goes by its fitted cost model and takes the least predicted time of paged, cascade and dense." : "";
  byId("d-result").textContent = `M_eff = ${human(values.b)} · ${human(values.group)} = ${human(m)} ${sign} ${human(values.msat)}: ${choose(m, values.msat)}.${classes} Dense from B = ${human(Math.ceil(values.msat / values.group))} on.${fitted}${unknown}`;
}

function loadProfile() {
  const profile = DATA.explore.profiles[Number(byId("d-profile").value)];
  byId("d-msat").value = profile.m_sat === null ? "" : profile.m_sat;
  updateDispatch();
}

byId("d-profile").addEventListener("change", loadProfile);
listen(D_IDS, updateDispatch);
loadProfile();
