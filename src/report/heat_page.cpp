#include "report/heat_page.h"

namespace conclave {

// clang-format off
const std::string_view kHeatPageStyle = R"css(
:root { --bg: #ffffff; --panel: #f6f6f9; --ink: #1c1c24; --muted: #5f5f6e; --line: #d9d9e0; --unused: #ececf0;
        --accent: #7a1fa2; --bar: #f3d9b8; }
@media (prefers-color-scheme: dark) {
  :root { --bg: #15151b; --panel: #1e1e26; --ink: #ececf1; --muted: #a0a0b0; --line: #363642; --unused: #24242d;
          --accent: #ffb454; --bar: #4a3358; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 24px clamp(12px, 3vw, 40px) 48px; max-width: 1700px; background: var(--bg);
       color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 32px 0 4px; }
header p { margin: 0; color: var(--muted); }
.muted { color: var(--muted); margin: 2px 0 10px; max-width: 100ch; }
#map { overflow-x: auto; }
canvas { display: block; }
#heat { outline-offset: 2px; cursor: crosshair; }
#legend { display: flex; align-items: flex-start; flex-wrap: wrap; gap: 8px; margin-top: 10px; font-size: 13px; line-height: 16px; }
#legend .swatch { width: 16px; height: 16px; background: var(--unused); border: 1px solid var(--line); }
#bar { margin: 0 -14px 0 0; }
.scroll { overflow-x: auto; }
.tall { max-height: 34em; overflow-y: auto; }
.tall thead th { position: sticky; top: 0; background: var(--bg); z-index: 1; }
table { border-collapse: collapse; font-size: 14px; }
th, td { padding: 2px 12px 2px 0; text-align: right; vertical-align: top; font-weight: normal; }
thead th { color: var(--muted); border-bottom: 1px solid var(--line); vertical-align: bottom; }
td.n, tbody th, #tokens td { font-variant-numeric: tabular-nums; }
.ids { text-align: left; padding-left: 6px; }
td.ids { overflow-wrap: anywhere; }
#layers td.ids div { max-height: 1.5em; overflow: hidden; }
#layers tr.on td.ids div { max-height: none; }
td.bar { position: relative; min-width: 120px; }
td.bar i { position: absolute; left: 8px; top: 3px; height: 1.25em; background: var(--bar); max-width: calc(100% - 12px); }
td.bar b { position: relative; font-weight: normal; }
#layers tbody tr { cursor: pointer; }
#layers tbody tr:hover td, #layers tbody tr:hover th { background: var(--panel); }
#layers tbody tr.on th { color: var(--accent); font-weight: 700; }
.controls { display: flex; gap: 18px; align-items: center; flex-wrap: wrap; margin: 8px 0; }
.controls .muted { margin: 0; }
select, button { font: inherit; color: var(--ink); background: var(--panel); border: 1px solid var(--line);
                 border-radius: 4px; padding: 2px 8px; }
#text { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: 10px 12px; margin-bottom: 14px;
        max-height: 22em; overflow-y: auto; font: 14px/1.9 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
#text span { border-radius: 3px; padding: 2px 1px; margin-right: 1px; border-bottom: 1px solid var(--line); }
#text span:hover { outline: 2px solid var(--accent); }
#tokens td { padding-right: 14px; }
#tokens td:nth-child(3) { font-family: ui-monospace, monospace; white-space: pre-wrap; }
.chip { display: inline-block; border: 1px solid var(--line); border-radius: 4px; padding: 0 6px; margin: 1px 4px 1px 0;
        background: var(--panel); cursor: pointer; white-space: nowrap; }
.chip small { color: var(--muted); }
.chip.on { border-color: var(--accent); box-shadow: inset 0 0 0 1px var(--accent); }
#tip { position: fixed; z-index: 2; pointer-events: none; background: var(--bg); color: var(--ink); border: 1px solid var(--line);
       border-radius: 6px; padding: 6px 10px; font-size: 13px; line-height: 1.45; box-shadow: 0 4px 16px rgba(0, 0, 0, .25);
       max-width: 340px; white-space: pre-line; font-variant-numeric: tabular-nums; }
#tip[hidden] { display: none; }
@media print { #text, .tall { max-height: none; } .controls, #more { display: none; } }
)css";

const std::string_view kHeatPageScript = R"js('use strict';
const D = JSON.parse(document.getElementById('data').textContent);
const $ = id => document.getElementById(id);
const nLayers = D.layers.length, nExperts = D.nExperts, topK = D.topK, nTokens = D.nTokens;
const mean = nTokens * topK / nExperts;
const dark = matchMedia('(prefers-color-scheme: dark)');
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const position = relative => Math.min(1, Math.sqrt(relative / D.maxRelative));
const colour = p => { const r = D.ramp[dark.matches ? 'dark' : 'light']; return r[Math.round(p * (r.length - 1))]; };
const percent = (x, of) => (100 * x / of).toFixed(1) + '%';
const chosen = { layer: 0, expert: -1 };
let hover = null, geometry = null, shownRows = 0;

function size(canvas, width, height) {
  const scale = devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.width = width + 'px';
  canvas.style.height = height + 'px';
  const g = canvas.getContext('2d');
  g.setTransform(scale, 0, 0, scale, 0, 0);
  g.clearRect(0, 0, width, height);
  g.font = '12px system-ui, sans-serif';
  return g;
}

function drawHeat() {
  const left = 56, top = 4, bottom = 38, right = 8;
  const room = $('map').clientWidth - left - right;
  const cw = Math.max(3, Math.min(44, Math.floor(room / nExperts)));
  const ch = Math.max(9, Math.min(34, Math.floor(640 / nLayers)));
  geometry = { left, top, cw, ch };
  const width = left + cw * nExperts + right, height = top + ch * nLayers + bottom;
  const g = size($('heat'), width, height);
  const gapX = cw >= 5 ? 1 : 0, gapY = ch >= 5 ? 1 : 0, unused = css('--unused');
  for (let l = 0; l < nLayers; ++l) {
    for (let e = 0; e < nExperts; ++e) {
      const load = D.load[l][e];
      g.fillStyle = load ? colour(position(load / mean)) : unused;
      g.fillRect(left + e * cw, top + l * ch, cw - gapX, ch - gapY);
    }
  }
  g.fillStyle = css('--muted');
  g.textBaseline = 'middle';
  g.textAlign = 'right';
  const rowStep = Math.ceil(14 / ch);
  for (let l = 0; l < nLayers; l += rowStep) g.fillText(D.layers[l], left - 8, top + l * ch + ch / 2);
  g.textAlign = 'center';
  g.textBaseline = 'top';
  let step = 1;
  while (step * cw < 30) step *= 2;
  for (let e = 0; e < nExperts; e += step) g.fillText(e, left + e * cw + (cw - gapX) / 2, top + nLayers * ch + 4);
  g.fillText('expert', left + Math.min(cw * nExperts, room) / 2, top + nLayers * ch + 21);
  g.save();
  g.translate(4, top + nLayers * ch / 2);
  g.rotate(-Math.PI / 2);
  g.fillText('layer', 0, 0);
  g.restore();
  outline(g, chosen.layer, chosen.expert, css('--accent'), 2);
  if (hover) outline(g, hover.layer, hover.expert, css('--ink'), 1.5);
}

// A cell, or the whole row where no expert is chosen.
function outline(g, layer, expert, style, width) {
  const { left, top, cw, ch } = geometry;
  g.strokeStyle = style;
  g.lineWidth = width;
  const x = expert < 0 ? left : left + expert * cw, w = expert < 0 ? cw * nExperts : cw;
  g.strokeRect(x - 1, top + layer * ch - 1, w + 1, ch + 1);
}

function drawLegend() {
  const width = 360, pad = 24;
  const g = size($('bar'), width + 2 * pad, 36);
  for (let x = 0; x < width; ++x) {
    g.fillStyle = colour(x / (width - 1));
    g.fillRect(pad + x, 0, 1.5, 16);
  }
  g.fillStyle = css('--ink');
  g.textAlign = 'center';
  g.textBaseline = 'top';
  const most = +D.maxRelative.toFixed(1);
  let freeFrom = -Infinity;
  for (const v of [0, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, most]) {
    const x = v === most ? width : position(v) * width, half = g.measureText(v).width / 2;
    if (v > most || x - half < freeFrom || (v !== most && x + half > width - 24)) continue;
    g.fillRect(pad + x - 0.5, 16, 1, 4);
    g.fillText(v, pad + x, 22);
    freeFrom = x + half + 8;
  }
}

function cellText(layer, expert) {
  const load = D.load[layer][expert];
  const lines = ['layer ' + D.layers[layer] + ', expert ' + expert];
  if (!load) return lines[0] + '\nnever used';
  lines.push('chosen by ' + load + ' of ' + nTokens + ' tokens (' + percent(load, nTokens) + ')');
  lines.push((load / mean).toFixed(2) + ' times an even share');
  lines.push('mean weight ' + (D.weight[layer][expert] / load).toFixed(3));
  return lines.join('\n');
}

function showTip(text, x, y) {
  const tip = $('tip');
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, x + 16 + box.width > innerWidth ? x - 12 - box.width : x + 16) + 'px';
  tip.style.top = Math.max(4, y + 16 + box.height > innerHeight ? y - 12 - box.height : y + 16) + 'px';
}

function cellAt(event) {
  const box = $('heat').getBoundingClientRect();
  const expert = Math.floor((event.clientX - box.left - geometry.left) / geometry.cw);
  const layer = Math.floor((event.clientY - box.top - geometry.top) / geometry.ch);
  if (layer < 0 || layer >= nLayers || expert >= nExperts || expert < -1e3) return null;
  return { layer, expert: Math.max(-1, expert) };
}

const slotOf = (layer, token, expert) => {
  for (let s = 0; s < topK; ++s) if (D.experts[layer][token * topK + s] === expert) return token * topK + s;
  return -1;
};
const weightText = w => w === null ? 'not a number' : w.toFixed(3);

function tokenText(token) {
  const [id, text] = D.tokens[token];
  const lines = ['token ' + token + ', id ' + id + ': ' + text, 'layer ' + D.layers[chosen.layer] + ':'];
  for (let s = 0; s < topK; ++s) {
    const i = token * topK + s;
    lines.push('expert ' + D.experts[chosen.layer][i] + ', weight ' + weightText(D.weights[chosen.layer][i]));
  }
  return lines.join('\n');
}

// Black or white, whichever stands out.
function inkOn(hex) {
  const v = parseInt(hex.slice(1), 16), part = shift => ((v >> shift & 255) / 255) ** 2.2;
  return 0.2126 * part(16) + 0.7152 * part(8) + 0.0722 * part(0) > 0.3 ? '#111' : '#fff';
}

function drawText() {
  const box = $('text'), { layer, expert } = chosen;
  let used = 0, largest = 0;
  if (expert >= 0) {
    for (let t = 0; t < D.tokens.length; ++t) {
      const slot = slotOf(layer, t, expert);
      if (slot >= 0) { ++used; largest = Math.max(largest, D.weights[layer][slot] || 0); }
    }
  }
  const all = document.createDocumentFragment();
  D.tokens.forEach(([, text], t) => {
    const span = document.createElement('span');
    span.textContent = text;
    span.dataset.token = t;
    const slot = expert >= 0 ? slotOf(layer, t, expert) : -1;
    if (slot >= 0) {
      const back = colour(0.15 + 0.85 * (largest > 0 ? Math.max(0, D.weights[layer][slot] || 0) / largest : 0));
      span.style.background = back;
      span.style.color = inkOn(back);
    }
    all.append(span);
    if (/\\n$/.test(text)) all.append('\n');
  });
  box.replaceChildren(all);
  $('chosen').textContent = expert < 0 ? 'Choose an expert to see which tokens it served.'
      : used + ' of ' + D.tokens.length + ' listed tokens were served by expert ' + expert + ' of layer ' + D.layers[layer] +
        '; the stronger the colour, the larger the weight.';
}

function moreRows(count) {
  const body = $('tokens').tBodies[0], { layer, expert } = chosen;
  const end = Math.min(D.tokens.length, shownRows + count);
  for (let t = shownRows; t < end; ++t) {
    const row = body.insertRow();
    row.insertCell().textContent = t;
    row.insertCell().textContent = D.tokens[t][0];
    const text = row.insertCell(), list = row.insertCell();
    text.textContent = D.tokens[t][1];
    text.className = list.className = 'ids';
    for (let s = 0; s < topK; ++s) {
      const e = D.experts[layer][t * topK + s], chip = document.createElement('span'), small = document.createElement('small');
      chip.className = e === expert ? 'chip on' : 'chip';
      chip.dataset.expert = e;
      small.textContent = weightText(D.weights[layer][t * topK + s]);
      chip.append(e + ' ', small);
      list.append(chip);
    }
  }
  shownRows = end;
  $('more').hidden = end === D.tokens.length;
}

function choose(layer, expert) {
  chosen.layer = layer;
  chosen.expert = expert;
  $('layer').value = layer;
  $('expert').value = expert;
  for (const row of $('layers').tBodies[0].rows) row.classList.toggle('on', +row.dataset.layer === layer);
  const rows = Math.max(shownRows, 100);
  $('tokens').tBodies[0].replaceChildren();
  shownRows = 0;
  moreRows(rows);
  drawText();
  drawHeat();
}

const option = (value, text) => new Option(text, value);
$('layer').append(...D.layers.map((number, l) => option(l, number)));
$('expert').append(option(-1, 'none'), ...Array.from({ length: nExperts }, (_, e) => option(e, e)));
$('layer').onchange = () => choose(+$('layer').value, chosen.expert);
$('expert').onchange = () => choose(chosen.layer, +$('expert').value);
$('more').onclick = () => moreRows(500);
$('heat').onmousemove = event => {
  const cell = cellAt(event), old = hover;
  hover = cell && cell.expert >= 0 ? cell : null;
  if (hover) showTip(cellText(hover.layer, hover.expert), event.clientX, event.clientY); else $('tip').hidden = true;
  if (JSON.stringify(old) !== JSON.stringify(hover)) requestAnimationFrame(drawHeat);
};
$('heat').onmouseleave = () => { hover = null; $('tip').hidden = true; drawHeat(); };
$('heat').onclick = event => { const cell = cellAt(event); if (cell) choose(cell.layer, cell.expert); };
$('heat').onkeydown = event => {
  const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!move) return;
  event.preventDefault();
  choose(Math.min(nLayers - 1, Math.max(0, chosen.layer + move[0])),
         Math.min(nExperts - 1, Math.max(-1, chosen.expert + move[1])));
  if (chosen.expert < 0) { $('tip').hidden = true; return; }
  const box = $('heat').getBoundingClientRect();
  showTip(cellText(chosen.layer, chosen.expert), box.left + geometry.left + (chosen.expert + 1) * geometry.cw,
          box.top + geometry.top + chosen.layer * geometry.ch);
};
$('heat').onblur = () => { $('tip').hidden = true; };
$('text').onmousemove = event => {
  const token = event.target.dataset.token;
  if (token === undefined) $('tip').hidden = true; else showTip(tokenText(+token), event.clientX, event.clientY);
};
$('text').onmouseleave = () => { $('tip').hidden = true; };
$('tokens').onclick = event => {
  const chip = event.target.closest('.chip');
  if (chip) choose(chosen.layer, +chip.dataset.expert);
};
$('layers').onclick = event => {
  const row = event.target.closest('tr[data-layer]');
  if (row) choose(+row.dataset.layer, chosen.expert);
};
function redraw() { drawHeat(); drawLegend(); drawText(); }
dark.addEventListener('change', redraw);
addEventListener('resize', drawHeat);
drawLegend();
choose(0, D.load[0].indexOf(Math.max(...D.load[0])));
)js";
// clang-format on

}  // namespace conclave
