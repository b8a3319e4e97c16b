// Brings an open page up to date, and its times; reading and acting work without it.
// What the server sends are parts of the page that it has rendered and escaped itself.

const RETRY_MS = 3000;
const UNITS = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

const status = document.getElementById("live");
const canHover = matchMedia("(hover: hover)").matches;
const held = new Map();
let query = location.search;
let aheadMs = 0;
let stream = null;

function kept(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

function keep(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {} // a browser that keeps nothing shows it on this page
}

// Times ---------------------------------------------------------------------------------------------------------------

function span(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1).replace(".0", "")}s`;
  const whole = Math.round(seconds);
  const at = UNITS.findIndex(([, length]) => whole >= length);
  const [unit, length] = UNITS[at];
  const [smaller, step] = UNITS[at + 1] ?? ["", 0];
  const rest = step ? Math.floor((whole % length) / step) : 0;
  return `${Math.floor(whole / length)}${unit}${rest ? ` ${rest}${smaller}` : ""}`;
}

function since(moment) {
  return span(Math.max(0, (Date.now() + aheadMs - moment) / 1000));
}

function when(moment) {
  const seconds = (moment - Date.now() - aheadMs) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  return seconds > 0 ? `in ${span(seconds)}` : `${span(-seconds)} ago`;
}

// The zone of a page's address, else the one that was chosen, else the browser's.
const NEAR = { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" };
const FORMS = {
  clock: NEAR,
  second: { ...NEAR, second: "2-digit" },
  exact: { dateStyle: "medium", timeStyle: "long" },
  time: { timeStyle: "medium" },
};
const formats = new Map(); // to make one takes longer than a hundred uses of it
let zone = "UTC";

function isZone(name) {
  try {
    return Boolean(name) && Boolean(new Intl.DateTimeFormat([], { timeZone: name }));
  } catch {
    return false;
  }
}

function browsersZone() {
  return new Intl.DateTimeFormat().resolvedOptions().timeZone;
}

function chooseZone() {
  zone = [document.documentElement.dataset.zone, kept("fastq-zone"), browsersZone()].find(isZone) ?? "UTC";
  formats.clear();
  document.getElementById("zone").textContent = zone;
}

function format(form) {
  if (!formats.has(form)) formats.set(form, new Intl.DateTimeFormat([], { ...FORMS[form], timeZone: zone }));
  return formats.get(form);
}

function clock(moment) {
  return format(moment % 60000 ? "second" : "clock").format(moment);
}

// The first line of a title is the time in this zone, the last line the time as the server wrote it.
function title(moment, old) {
  const utc = old.slice(old.lastIndexOf("\n") + 1);
  return zone === "UTC" ? utc : `${format("exact").format(moment)}\n${utc}`;
}

// Times that have just arrived, or are still in another zone, get a new title and a new clock time.
function renewTimes() {
  for (const element of document.querySelectorAll("time[datetime]")) {
    const isDone = element.dataset.in === zone;
    const isClock = element.dataset.form === "clock";
    if (isDone && isClock) continue;
    const moment = Date.parse(element.dateTime);
    const text = isClock ? clock(moment) : element.dataset.form === "span" ? since(moment) : when(moment);
    if (element.textContent !== text) element.textContent = text;
    if (isDone) continue;
    element.title = title(moment, element.title);
    element.dataset.in = zone;
  }
}

function renewBars() {
  for (const bar of document.querySelectorAll("g[data-from]")) {
    if (bar.dataset.in === zone) continue;
    const label = bar.firstElementChild;
    const times = format("clock").formatRange(1000 * bar.dataset.from, 1000 * bar.dataset.to);
    label.textContent = `${label.textContent.split("\n")[0]}\n${times}`;
    bar.dataset.in = zone;
  }
}

function renewAll() {
  renewTimes();
  renewBars();
}

function setClock(now) {
  aheadMs = Date.parse(now) - Date.now();
}

// Parts ---------------------------------------------------------------------------------------------------------------

// Change as little as possible, so that focus, selection, ticks, opened details and places scrolled to stay.
const OWN = new Set(["open", "hidden", "disabled"]); // what the viewer or this script has set

function morph(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name, value } of [...fresh.attributes]) {
    if (!OWN.has(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!OWN.has(name) && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  morphChildren(old, fresh);
}

function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null;
}

function morphChildren(old, fresh) {
  const known = new Map();
  for (const child of old.children) if (keyOf(child) !== null) known.set(keyOf(child), child);
  let next = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const key = keyOf(child);
    const same = key === null ? next : known.get(key);
    if (same && same.nodeType === child.nodeType && same.nodeName === child.nodeName && keyOf(same) === key) {
      if (same === next) next = next.nextSibling;
      else old.insertBefore(same, next);
      morph(same, child);
    } else {
      old.insertBefore(child, next);
    }
  }
  while (next) {
    const after = next.nextSibling;
    next.remove();
    next = after;
  }
}

// Rows do not move under the pointer or the keyboard, nor while some are chosen.
function isInUse(part) {
  return part.querySelector("tbody input:checked, tbody :focus") !== null
    || (canHover && part.querySelector("tbody tr:hover") !== null);
}

// Unchanged rows come as their old numbers, which count in what was sent last; the page may show something older.
const sent = new Map();

function whole(name, html) {
  const fresh = document.createElement("template");
  fresh.innerHTML = html;
  const rows = sent.get(name)?.querySelectorAll("tr[data-key]") ?? [];
  for (const row of fresh.content.querySelectorAll("tr[data-same]")) {
    row.replaceWith(rows[row.dataset.same].cloneNode(true));
  }
  sent.set(name, fresh.content);
  return fresh.content.cloneNode(true);
}

function renewPart(name, content) {
  const part = document.querySelector(`[data-part="${CSS.escape(name)}"]`);
  if (part === null) return;
  if (isInUse(part)) {
    held.set(name, content);
    return;
  }
  held.delete(name);
  morphChildren(part, content);
}

function releaseHeld() {
  for (const [name, content] of [...held]) renewPart(name, content);
  showChosen();
  if (held.size === 0 && status?.dataset.state === "held") show("live", "live");
}

// The stream ----------------------------------------------------------------------------------------------------------

function show(state, text) {
  status.dataset.state = state;
  status.textContent = text;
}

function connect() {
  const here = location.pathname.slice(status.dataset.base.length);
  stream = new EventSource(`${status.dataset.events}?of=${encodeURIComponent(here + query)}`);
  stream.onopen = () => show("live", "live");
  stream.addEventListener("parts", (event) => {
    const { parts, now } = JSON.parse(event.data);
    setClock(now);
    for (const [name, html] of Object.entries(parts)) renewPart(name, whole(name, html));
    show(held.size ? "held" : "live", held.size ? "waits while a row is in use" : "live");
    renewAll();
    showCopy();
    showChosen();
    showFiltered();
  });
  stream.addEventListener("trouble", (event) => {
    const { text, now } = JSON.parse(event.data);
    if (status.dataset.state !== "trouble") {
      show("trouble", `Not up to date since ${format("time").format(new Date(now))}: ${text}`);
    }
  });
  stream.onerror = () => {
    show("trouble", "Not up to date: fastq web does not answer");
    if (stream?.readyState === EventSource.CLOSED) {
      disconnect();
      setTimeout(follow, RETRY_MS);
    }
  };
}

function disconnect() {
  stream?.close();
  stream = null;
}

// A browser opens few connections to a server, so pages that are not seen give theirs back.
function follow() {
  if (document.hidden) disconnect();
  else if (stream === null) connect();
}

// Days begin at the viewer's midnight. Only the server can add them up, from its hours.
async function showOwnDays() {
  const days = document.getElementById("days");
  if (days === null || days.dataset.zone === zone || document.documentElement.dataset.zone) return;
  const asked = new URLSearchParams(location.search);
  asked.set("zone", zone);
  try {
    const reply = await fetch(`${location.pathname}?${asked}`);
    if (reply.status === 400) days.textContent += ` The server does not know ${zone}.`;
    if (!reply.ok) return;
    const fresh = new DOMParser().parseFromString(await reply.text(), "text/html");
    for (const part of fresh.querySelectorAll("[data-part]")) renewPart(part.dataset.part, part);
    morph(days, fresh.getElementById("days"));
    query = `?${asked}`;
    renewAll();
  } catch {} // the stream finds the server gone, too, and says so
}

async function useZone() {
  chooseZone();
  renewAll();
  disconnect();
  await showOwnDays();
  if (status) follow();
}

if (status) {
  setClock(status.dataset.now);
  document.addEventListener("visibilitychange", follow);
  addEventListener("pagehide", disconnect);
}
useZone();
addEventListener("pageshow", (event) => event.persisted && useZone());
addEventListener("storage", (event) => event.key === "fastq-zone" && useZone()); // the zone was chosen on another page
setInterval(() => {
  renewTimes();
  releaseHeld();
}, 1000);

// The choice of tasks --------------------------------------------------------------------------------------------------

function showChosen() {
  const form = document.querySelector("form.tasks");
  if (!form) return;
  const boxes = [...form.querySelectorAll("tbody .tick input")];
  const count = boxes.filter((box) => box.checked).length;
  const all = form.querySelector("[data-all]");
  if (all) {
    all.hidden = false;
    all.checked = count > 0 && count === boxes.length;
    all.indeterminate = count > 0 && count < boxes.length;
  }
  for (const button of form.querySelectorAll("button[data-chosen]")) button.disabled = count === 0;
  const told = document.getElementById("chosen");
  if (told) told.textContent = count || "";
}

document.addEventListener("change", (event) => {
  if (event.target.matches?.("[data-all]")) {
    for (const box of document.querySelectorAll("form.tasks tbody .tick input")) box.checked = event.target.checked;
  }
  if (event.target.closest?.("form.tasks")) showChosen();
});

// The filter of a long list of queues

const filter = document.querySelector("[data-filter]");

function showFiltered() {
  const wanted = filter?.elements[0].value.toLowerCase() ?? "";
  for (const row of filter ? document.querySelectorAll(".queues tbody tr") : []) {
    row.hidden = !row.dataset.key.toLowerCase().includes(wanted);
  }
}

if (filter) {
  filter.hidden = false;
  filter.addEventListener("input", showFiltered);
  filter.addEventListener("submit", (event) => event.preventDefault());
}

// The keyboard --------------------------------------------------------------------------------------------------------

const PAGES = { q: "", s: "servers", c: "schedulers", h: "history", j: "jobs", r: "redis" };
let before = "";

function step(by) {
  const links = [...document.querySelectorAll("main tbody th a.name")];
  if (links.length === 0) return;
  const at = links.indexOf(document.activeElement.closest?.("tr")?.querySelector("th a.name"));
  links[at < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(Math.max(at + by, 0), links.length - 1)].focus();
}

const KEYS = {
  "/": () => (document.querySelector(".ask[role=search] input") ?? document.querySelector(".find input")).focus(),
  "?": () => document.getElementById("keys").showModal(),
  j: () => step(1),
  k: () => step(-1),
  x: () => document.activeElement.closest?.("tr")?.querySelector("input[type=checkbox]")?.click(),
};

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest?.("input:not([type=checkbox]), textarea, select, dialog") !== null;
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const path = before === "g" ? PAGES[event.key] : undefined;
  before = event.key;
  if (path !== undefined) location.assign(document.querySelector(".brand").getAttribute("href") + path);
  else if (KEYS[event.key]) KEYS[event.key]();
  else return;
  event.preventDefault();
});

// The look, which the browser keeps -----------------------------------------------------------------------------------

const THEMES = ["auto", "light", "dark"];
const themeButton = document.getElementById("theme");

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  themeButton.textContent = `Theme: ${theme}`;
}

const keptTheme = kept("fastq-theme");
setTheme(THEMES.includes(keptTheme) ? keptTheme : "auto");
themeButton.hidden = false;
themeButton.addEventListener("click", () => {
  const next = THEMES[(THEMES.indexOf(themeButton.textContent.slice(7)) + 1) % THEMES.length];
  setTheme(next);
  keep("fastq-theme", next);
});

// The choice of the time zone, on the page of the settings

const zones = document.getElementById("zones");
if (zones) {
  const option = (name, text = name) => zones.append(new Option(text, name));
  option("", `the browser's: ${browsersZone()}`);
  option("UTC");
  for (const name of Intl.supportedValuesOf("timeZone")) if (name !== "UTC") option(name);
  zones.value = kept("fastq-zone") ?? "";
  const hidden = zones.closest("[hidden]");
  hidden.hidden = false;
  hidden.nextElementSibling.remove(); // this element says that no script runs
  zones.addEventListener("change", () => {
    keep("fastq-zone", zones.value);
    useZone();
  });
}

// Copies of what is shown ---------------------------------------------------------------------------------------------

function showCopy() {
  for (const button of document.querySelectorAll("button[data-copy]")) button.hidden = false;
}

// Browsers give the clipboard only to https and localhost; elsewhere the text is selected, to be copied by hand.
document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("button[data-copy]");
  const text = button?.closest("div").parentElement.querySelector("pre");
  if (!text) return;
  getSelection().selectAllChildren(text);
  try {
    await navigator.clipboard.writeText(text.textContent);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Selected";
  }
});

showCopy();
showChosen();
