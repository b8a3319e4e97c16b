// Brings an open page up to date, and its times; reading and acting work without it.
// What the server sends are parts of the page that it has rendered and escaped itself.

const RETRY_MS = 3000;
const UNITS = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

const status = document.getElementById("live");
const canHover = matchMedia("(hover: hover)").matches;
const held = new Map();
let aheadMs = 0;
let stream = null;

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

function when(moment) {
  const seconds = (moment - Date.now() - aheadMs) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  return seconds > 0 ? `in ${span(seconds)}` : `${span(-seconds)} ago`;
}

function clock(moment) {
  const second = moment % 60000 ? { second: "2-digit" } : {};
  return new Date(moment).toLocaleString([], { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", ...second });
}

function renewTimes() {
  for (const element of document.querySelectorAll("time[datetime]")) {
    const moment = Date.parse(element.dateTime);
    const text = element.dataset.form === "clock" ? clock(moment) : when(moment);
    if (element.textContent !== text) element.textContent = text;
    if (!element.title.includes("\n")) element.title = `${new Date(moment).toLocaleString()}\n${element.title}`;
  }
}

function setClock(now) {
  aheadMs = Date.parse(now) - Date.now();
}

// Parts ---------------------------------------------------------------------------------------------------------------

// Change as little as possible, so that focus, selection, ticks, opened details and places scrolled to stay.
function morph(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name, value } of [...fresh.attributes]) {
    if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
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

function renewPart(name, html) {
  const part = document.querySelector(`[data-part="${CSS.escape(name)}"]`);
  if (part === null) return;
  if (isInUse(part)) {
    held.set(name, html);
    return;
  }
  held.delete(name);
  const fresh = document.createElement("template");
  fresh.innerHTML = html;
  morphChildren(part, fresh.content);
}

function releaseHeld() {
  for (const [name, html] of [...held]) renewPart(name, html);
  if (held.size === 0 && status?.dataset.state === "held") show("live", "live");
}

// The stream ----------------------------------------------------------------------------------------------------------

function show(state, text) {
  status.dataset.state = state;
  status.textContent = text;
}

function connect() {
  const here = location.pathname.slice(status.dataset.base.length) + location.search;
  stream = new EventSource(`${status.dataset.events}?of=${encodeURIComponent(here)}`);
  stream.onopen = () => show("live", "live");
  stream.addEventListener("parts", (event) => {
    const { parts, now } = JSON.parse(event.data);
    setClock(now);
    for (const [name, html] of Object.entries(parts)) renewPart(name, html);
    show(held.size ? "held" : "live", held.size ? "waits while a row is in use" : "live");
    renewTimes();
  });
  stream.addEventListener("trouble", (event) => {
    const { text, now } = JSON.parse(event.data);
    if (status.dataset.state !== "trouble") {
      show("trouble", `Not up to date since ${new Date(now).toLocaleTimeString()}: ${text}`);
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

if (status) {
  setClock(status.dataset.now);
  document.addEventListener("visibilitychange", follow);
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", follow);
  follow();
}
renewTimes();
setInterval(() => {
  renewTimes();
  releaseHeld();
}, 1000);

// The keyboard --------------------------------------------------------------------------------------------------------

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest?.("input, textarea, select") !== null;
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  (document.querySelector(".ask input") ?? document.querySelector(".find input")).focus();
});
