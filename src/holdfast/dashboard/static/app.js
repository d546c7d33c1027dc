// The dashboard works without this file. It adds live updates, keys, completion and the theme.

const policy = window.trustedTypes
  ? trustedTypes.createPolicy("holdfast", { createHTML: (html) => html })
  : { createHTML: (html) => html };
const body = document.body;
const $ = (selector, inside = document) => inside.querySelector(selector);
const $$ = (selector, inside = document) => [...inside.querySelectorAll(selector)];

// Morph: change the page to what the server sent, and keep focus, open parts and selections.

const keyOf = (node) => node.dataset?.key || node.id || "";
const KEPT = { DETAILS: ["open"], INPUT: ["hidden"], BUTTON: ["hidden"], DIALOG: ["open"] };

function morphAttributes(now, next) {
  for (const { name } of [...now.attributes]) {
    if (!next.hasAttribute(name) && !KEPT[now.tagName]?.includes(name) && !(name === "class" && now.classList.contains("here"))) now.removeAttribute(name);
  }
  for (const { name, value } of [...next.attributes]) {
    if (KEPT[now.tagName]?.includes(name)) continue;
    if (name === "class" && now.classList.contains("here")) now.className = value + " here";
    else if (now.getAttribute(name) !== value) now.setAttribute(name, value);
  }
}

function morph(now, next) {
  const keyed = new Map();
  for (const child of now.children) if (keyOf(child)) keyed.set(keyOf(child), child);
  let at = now.firstChild;
  for (const wanted of [...next.childNodes]) {
    const key = wanted.nodeType === 1 ? keyOf(wanted) : "";
    let match = key ? keyed.get(key) : at;
    if (!key && match && (match.nodeType !== wanted.nodeType || match.nodeName !== wanted.nodeName || keyOf(match))) match = null;
    if (!match) {
      now.insertBefore(wanted, at);
      if (key) wanted.classList?.add("fresh");
      continue;
    }
    if (match === at) at = at.nextSibling;
    else now.insertBefore(match, at);
    if (wanted.nodeType !== 1) {
      if (match.nodeValue !== wanted.nodeValue) match.nodeValue = wanted.nodeValue;
    } else if (!match.contains(document.activeElement) || !/^(INPUT|SELECT|TEXTAREA)$/.test(match.tagName)) {
      morphAttributes(match, wanted);
      if (!(match.tagName === "FORM" && (match.contains(document.activeElement) || $(".refused", match)))) morph(match, wanted);
    }
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

function parsed(html) {
  const made = document.createElement("template");
  made.innerHTML = policy.createHTML(html);
  return made.content;
}

// A list with ticked rows holds still; what came meanwhile is kept until none is ticked.

let later = {}, newer = 0;

function patch(fragments) {
  for (const [name, html] of Object.entries(fragments)) {
    const place = document.getElementById("live-" + name);
    if (!place) continue;
    const next = parsed(html);
    if ($("input[name=id]:checked", place)) {
      later[name] = html;
      const here = new Set($$("[data-row]", place).map(keyOf));
      newer = $$("[data-row]", next).filter((row) => !here.has(keyOf(row))).length;
    } else {
      delete later[name];
      morph(place, next);
    }
  }
  prepare();
}

// The stream: closed while the tab is hidden or held still.

let source, still = false, held = null;
const banner = $("#banner");

function say(text) {
  banner.textContent = text;
  banner.hidden = !text;
}

function open() {
  if (!body.dataset.feed || source || document.hidden || still) return;
  source = new EventSource(body.dataset.feed);
  const since = new Date().toLocaleTimeString();
  source.addEventListener("patch", (event) => patch(JSON.parse(event.data)));
  source.addEventListener("away", () => say(`The store does not respond. This page shows what was known at ${new Date().toLocaleTimeString()}; it goes on by itself.`));
  source.addEventListener("back", () => say(""));
  source.addEventListener("ended", () => location.reload());
  source.onopen = () => say("");
  source.onerror = () => {
    say(`The server does not respond. This page shows what was known at ${since}; it goes on by itself.`);
    if (source.readyState === EventSource.CLOSED) {
      close();
      setTimeout(open, 3000);
    }
  };
}

function close() {
  source?.close();
  source = null;
}

// Where the server cannot keep streams open, the page is fetched again and changed in the same way.

async function again() {
  if (document.hidden || still) return;
  const answer = await fetch(location.href).catch(() => null);
  if (answer?.redirected || answer?.status === 403) location.reload();
  else if (!answer?.ok) say("The server does not respond. This page goes on by itself.");
  else {
    const parts = $$("[data-live]", parsed(await answer.text()));
    if (!still) say("");
    patch(Object.fromEntries(parts.map((part) => [part.id.slice(5), part.innerHTML])));
  }
}
if (body.dataset.refresh) setInterval(again, body.dataset.refresh * 1000);

document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
addEventListener("pagehide", close);
addEventListener("pageshow", open);

// Times count on by themselves.

const UNITS = [["d", 86400], ["h", 3600], ["min", 60]];
function ago(at, open) {
  const seconds = (Date.now() - at) / 1000;
  if (Math.abs(seconds) < 1) return open ? "0 s" : "now";
  const [unit, size] = UNITS.find(([, size]) => Math.abs(seconds) >= size) || ["s", 1];
  const text = `${Math.floor(Math.abs(seconds) / size)} ${unit}`;
  return open ? text : seconds > 0 ? `${text} ago` : `in ${text}`;
}
setInterval(() => {
  if (document.hidden || still) return;
  for (const time of $$("time[datetime]")) {
    const text = ago(Date.parse(time.dateTime), "since" in time.dataset);
    if (time.textContent !== text) time.textContent = text;
  }
}, 1000);

// Rows: a current one, and those that are selected.

let last = null;
const rows = () => $$("[data-row]");
const boxes = () => $$("tbody input[name=id]");

function move(step) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => row.classList.contains("here"));
  const next = all[Math.max(0, Math.min(all.length - 1, at + step))];
  all[at]?.classList.remove("here");
  next.classList.add("here");
  next.scrollIntoView({ block: "nearest" });
  $("[data-open]", next)?.focus({ preventScroll: true });
}

function count() {
  const place = $("[data-selected]");
  if (!place) return;
  const chosen = boxes().filter((box) => box.checked).length;
  if (!chosen && Object.keys(later).length) {
    const due = later;
    [later, newer] = [{}, 0];
    return patch(due);
  }
  const held = newer ? `, ${newer} newer when you untick` : "";
  place.textContent = chosen ? `${chosen} selected${held}` : "Select jobs to act on them";
  for (const button of $$(".toolbar button")) button.disabled = !chosen;
  const all = $("[data-all]");
  if (all) {
    all.checked = chosen > 0 && chosen === boxes().length;
    all.indeterminate = chosen > 0 && !all.checked;
  }
}

document.addEventListener("click", (event) => {
  const box = event.target;
  if (box.matches?.("[data-all]")) for (const each of boxes()) each.checked = box.checked;
  if (box.matches?.("tbody input[name=id]")) {
    const all = boxes();
    if (event.shiftKey && last) {
      const [from, to] = [all.indexOf(last), all.indexOf(box)].sort((a, b) => a - b);
      for (const each of all.slice(from, to + 1)) each.checked = box.checked;
    }
    last = box;
  }
  if (box.matches?.("input")) count();
  for (const sheet of $$("details.options[open], details.account[open], details.everything[open], details.syntax[open]")) {
    if (!sheet.contains(box)) sheet.open = false;
  }
});

// The theme is kept in a cookie, so that the server sends the page in it.

function theme() {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const next = dark ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  document.cookie = `holdfast-theme=${next}; path=/; max-age=31536000; samesite=strict`;
}

const help = () => $("#help").showModal();

function hold() {
  still = !still;
  if (still) {
    close();
    say("This page is held still. Press p to go on.");
  } else {
    say("");
    open();
  }
}

function copy({ currentTarget: button }) {
  navigator.clipboard.writeText(button.dataset.text).then(() => {
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}

for (const button of $$("[data-do]")) {
  button.hidden = button.dataset.do === "copy" && !navigator.clipboard;
  button.onclick = { theme, help, copy }[button.dataset.do];
}

// Keys.

let leading = 0;
function press(key) {
  const target = $$(`[data-key-do="${key}"]`).find((each) => !each.disabled);
  if (target) target.click();
  else if ($(`[data-key-do="${key}"]`)) {
    const hint = "Select rows with x first.";
    say(hint);
    setTimeout(() => banner.textContent === hint && say(""), 4000);
  }
}
const KEYS = {
  "/": () => { const box = $(".find input"); box?.focus(); box?.select(); },
  "?": help,
  g: () => { leading = Date.now(); },
  j: () => move(1),
  k: () => move(-1),
  x: () => { const box = $(".here input[name=id]"); if (box) { box.checked = !box.checked; last = box; count(); } },
  R: () => press("R"),
  C: () => press("C"),
  p: hold,
  t: theme,
};
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    for (const each of $$("details[open] > .sheet")) each.parentElement.open = false;
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) event.target.blur();
    return;
  }
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "checkbox") return;
  if ($("dialog[open]")) return;
  if (Date.now() - leading < 1500) {
    leading = 0;
    const link = $(`[data-go="${CSS.escape(event.key)}"]`);
    if (link) { event.preventDefault(); link.click(); }
    return;
  }
  if (event.key === "Enter" && event.target === body) $(".here [data-open]")?.click();
  const run = KEYS[event.key];
  if (run) { event.preventDefault(); run(); }
});

// Completion of the search, from what the store knows.

const box = $("[data-complete]");
if (box) {
  const list = document.createElement("datalist");
  list.id = "completions";
  body.append(list);
  box.setAttribute("list", list.id);
  let asked = "", timer;
  box.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      if (box.value === asked) return;
      asked = box.value;
      const url = `${box.dataset.complete}?q=${encodeURIComponent(asked)}`;
      const found = await fetch(url, { headers: { accept: "application/json" } }).then((answer) => (answer.ok ? answer.json() : []), () => []);
      if (box.value !== asked) return;
      list.replaceChildren(...found.map((text) => Object.assign(document.createElement("option"), { value: text })));
    }, 120);
  });
}

function prepare() {
  for (const all of $$("[data-all]")) all.hidden = false;
  count();
}
prepare();
for (const step of $$(".canvas .current")) {
  const canvas = step.closest(".canvas"), box = step.getBoundingClientRect(), frame = canvas.getBoundingClientRect();
  canvas.scrollBy(box.left + box.width / 2 - frame.left - frame.width / 2, box.top + box.height / 2 - frame.top - frame.height / 2);
}
if (body.dataset.here) history.replaceState(null, "", body.dataset.here);
if (location.search.includes("notice=")) {
  const here = new URL(location);
  here.searchParams.delete("notice");
  history.replaceState(null, "", here);
}
if ($("[data-again]")) setTimeout(() => location.reload(), 3000);
open();
