// Amdahl's law (Eq. 3, Eq. 4) and the roofline of one prefix-attention launch (B.11).
const A_IDS = ["a-alpha", "a-beta", "a-gamma", "a-s", "a-measured"];
const eq3 = (alpha, s) => 1 / (1 - alpha + alpha / s);
const eq4 = (alpha, beta, gamma, s) => 1 / (1 - alpha - beta - gamma + alpha / s + beta + gamma);

function effective(alpha, measured) {
  const left = 1 / measured - (1 - alpha);
  return left > 0 ? alpha / left : Infinity;
}

// Linear or logarithmic positions on a chart's axes, with grid lines and labels.
function frame(svg, { x, y, xs, ys, xTitle, yTitle, width, height, log }) {
  svg.replaceChildren();
  const left = 56, right = 14, top = 12, bottom = 44;
  const place = (value, [low, high], from, to, logged) => {
    const [v, a, b] = logged ? [Math.log10(value), Math.log10(low), Math.log10(high)] : [value, low, high];
    return from + ((v - a) / (b - a)) * (to - from);
  };
  const px = (value) => place(value, x, left, width - right, true);
  const py = (value) => place(value, y, height - bottom, top, log);
  for (const tick of xs) {
    drawn(svg, "line", { class: "gridline", x1: px(tick), x2: px(tick), y1: top, y2: height - bottom });
    drawn(svg, "text", { x: px(tick), y: height - bottom + 16, "text-anchor": "middle" }, human(tick));
  }
  for (const tick of ys) {
    drawn(svg, "line", { class: "gridline", x1: left, x2: width - right, y1: py(tick), y2: py(tick) });
    drawn(svg, "text", { x: left - 6, y: py(tick) + 4, "text-anchor": "end" }, human(tick));
  }
  drawn(svg, "text", { x: (left + width - right) / 2, y: height - 8, "text-anchor": "middle" }, xTitle);
  drawn(svg, "text", { transform: `translate(14 ${(top + height - bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, yTitle);
  return { px, py };
}

function curve(svg, points, colour, dash = "") {
  drawn(svg, "path", { d: points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join(""), fill: "none", stroke: colour, "stroke-width": 2, "stroke-dasharray": dash });
}

function mark(svg, x, y, colour, label, { anchor = "start", below = 0 } = {}) {
  drawn(svg, "circle", { cx: x, cy: y, r: 5, fill: colour, stroke: "var(--card)", "stroke-width": 1.5 });
  drawn(svg, "text", { x: x + (anchor === "start" ? 9 : -9), y: y + 4 + below, "text-anchor": anchor }, label);
}

function updateAmdahl() {
  const values = readNumbers(A_IDS, "a-error");
  if (!values) return;
  const [alpha, beta, gamma] = [values.alpha / 100, values.beta / 100, values.gamma / 100];
  if (alpha + beta + gamma > 1 + 1e-9) {
    byId("a-error").textContent = "α, β and γ are shares of one step: together they cannot be more than 100%.";
    return;
  }
  const busy = Math.min(1, alpha / (1 - gamma));
  const limit = alpha < 1 ? 1 / (1 - alpha) : Infinity;
  const results = [
    ["Eq. 3: 1 / ((1 − α) + α/s)", times(eq3(alpha, values.s))],
    ["Eq. 4, with β and γ", times(eq4(alpha, beta, gamma, values.s))],
    ["with α/(1 − γ), as Table 22's S (s)", times(eq3(busy, values.s))],
    ["s_eff that the measurement implies", times(effective(alpha, values.measured))],
    ["limit for s → ∞", times(limit)],
  ];
  const out = byId("a-out");
  out.replaceChildren();
  for (const [name, value] of results) {
    const box = element("div");
    box.append(element("dt", {}, name), element("dd", {}, value));
    out.appendChild(box);
  }
  drawAmdahl(alpha, values);
}

function drawAmdahl(alpha, values) {
  const svg = byId("a-chart");
  const top = Math.max(1.5, Math.min(alpha < 1 ? 1 / (1 - alpha) : 100, 20), values.measured) * 1.1;
  const step = top > 8 ? 4 : top > 4 ? 1 : 0.5;
  const ys = [];
  for (let tick = 1; tick <= top; tick += step) ys.push(tick);
  const { px, py } = frame(svg, { x: [1, 100], y: [0.8, top], xs: [1, 2, 5, 10, 20, 50, 100], ys, xTitle: "gain of the kernel, s (×)", yTitle: "end to end (×)", width: 640, height: 260, log: false });
  const points = [];
  for (let i = 0; i <= 80; i += 1) { const s = 10 ** (i / 40); points.push([px(s), py(eq3(alpha, s))]); }
  curve(svg, points, "var(--shipped)");
  curve(svg, [[px(1), py(values.measured)], [px(100), py(values.measured)]], "var(--here)", "5 4");
  drawn(svg, "text", { x: px(1) + 6, y: py(values.measured) - 6 }, `measured ${times(values.measured)}`);
  const s = Math.min(Math.max(values.s, 1), 100);
  mark(svg, px(s), py(eq3(alpha, s)), "var(--shipped)", `s = ${human(values.s)}: ${times(eq3(alpha, values.s))}`, { anchor: s > 2 ? "end" : "start", below: -12 });
  const seff = effective(alpha, values.measured);
  if (seff >= 1 && seff <= 100) mark(svg, px(seff), py(values.measured), "var(--here)", `s_eff ${times(seff)}`, { below: 15 });
}

function loadAmdahl() {
  const preset = DATA.explore.amdahl[Number(byId("a-preset").value)];
  for (const name of ["alpha", "beta", "gamma"]) byId(`a-${name}`).value = +(100 * preset[name]).toFixed(2);
  byId("a-s").value = +preset.s.toFixed(2);
  byId("a-measured").value = preset.measured === null ? 1 : +preset.measured.toFixed(2);
  updateAmdahl();
}

byId("a-preset").addEventListener("change", loadAmdahl);
listen(A_IDS, updateAmdahl);
loadAmdahl();

const R_IDS = ["r-b", "r-lp"];

function launch(model, b, lp, shared) {
  const [q, kv] = [model.q_heads / model.tp, model.kv_heads / model.tp];
  const flop = 4 * b * q * model.head_dim * lp;
  const read = lp * 2 * kv * model.head_dim * 2 * (shared ? 1 : b);
  return { flop, read, intensity: flop / read };
}

function bound(profile, one) {
  const memory = (one.intensity * profile.bandwidth) / 1000;
  const roof = Math.min(profile.peak, memory);
  return { roof, seconds: one.flop / (roof * 1e12), by: memory < profile.peak ? "memory" : "arithmetic" };
}

function updateRoofline() {
  const values = readNumbers(R_IDS, "r-error");
  if (!values) return;
  const profile = DATA.explore.profiles.find((one) => one.name === byId("r-profile").value);
  const model = DATA.explore.models[Number(byId("r-model").value)];
  const both = [false, true].map((shared) => launch(model, values.b, values.lp, shared));
  const bounds = both.map((one) => bound(profile, one));
  fillRows(byId("r-table"), [
    ["Useful work", ...both.map((one) => `${human(one.flop / 1e9)} GFLOP`)],
    ["K and V read, by the byte model", ...both.map((one) => bytes(one.read))],
    ["Arithmetic intensity", ...both.map((one) => `${human(one.intensity)} FLOP/byte`)],
    ["Roof", ...bounds.map((one) => `${human(one.roof)} TFLOP/s`)],
    ["Bound by", ...bounds.map((one) => one.by)],
    ["At least", ...bounds.map((one) => `${human(one.seconds * 1e6)} µs`)],
    ["At least, all layers", ...bounds.map((one) => `${human(one.seconds * model.layers * 1e3)} ms`)],
  ]);
  byId("r-result").textContent = `Reading the prefix once raises the roof ${times(bounds[1].roof / bounds[0].roof)}; the ridge of ${profile.title} is at ${human((profile.peak * 1000) / profile.bandwidth)} FLOP/byte.`;
  const by = [...new Set(DATA.explore.roofline.filter((one) => one.profile === profile.name).map((one) => one.by))];
  byId("r-measured").textContent = by.length ? `Hollow: measured by ${by.join(" and ")} at B = 256, L_p = 8K, Llama-3.1-8B heads, at the intensity of DRAM counters.` : "Nothing was measured on this hardware.";
  drawRoofline(profile, both, bounds);
}

function drawRoofline(profile, both, bounds) {
  const svg = byId("r-chart");
  const decades = [1, 10, 100, 1000, 10000];
  const { px, py } = frame(svg, { x: [0.5, 20000], y: [0.5, 2000], xs: decades, ys: decades.slice(0, 4), xTitle: "arithmetic intensity (FLOP/byte)", yTitle: "TFLOP/s", width: 640, height: 300, log: true });
  const ridge = (profile.peak * 1000) / profile.bandwidth;
  const low = Math.max(0.5, 500 / profile.bandwidth);
  curve(svg, [[px(low), py((low * profile.bandwidth) / 1000)], [px(ridge), py(profile.peak)], [px(20000), py(profile.peak)]], "var(--ink)");
  const inside = (value, range) => Math.min(Math.max(value, range[0]), range[1]);
  ["paged", "HOT"].forEach((name, index) => {
    const x = px(inside(both[index].intensity, [0.5, 20000]));
    const y = py(inside(bounds[index].roof, [0.5, 2000]));
    mark(svg, x, y, index ? "#009E73" : "#D55E00", `${name}: roof`, { anchor: index ? "end" : "start", below: index ? -14 : 0 });
  });
  for (const point of DATA.explore.roofline.filter((one) => one.profile === profile.name)) {
    const x = px(inside(point.intensity, [0.5, 20000]));
    const y = py(inside(point.tflops, [0.5, 2000]));
    drawn(svg, "rect", { x: x - 4, y: y - 4, width: 8, height: 8, fill: "none", stroke: point.read === "shared" ? "#009E73" : "#D55E00", "stroke-width": 2 });
    const reader = point.read === "shared" ? "read once" : "by each row";
    drawn(svg, "text", { x: x + 9, y: y + (point.layout === "HOT" ? -3 : 16) }, `${point.layout}, ${reader}`);
  }
}

for (const id of ["r-profile", "r-model"]) byId(id).addEventListener("change", updateRoofline);
listen(R_IDS, updateRoofline);
updateRoofline();
