"use strict";
// Sorting, filtering, copying; everything else works without it.
for (const table of document.querySelectorAll("table[data-sort]")) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = head.querySelector("button");
    if (!button) return;
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((one) => one.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "ascending" : "descending");
      const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim().toLowerCase();
      const numeric = head.classList.contains("number");
      const rows = [...body.rows].sort((a, b) => numeric ? key(a) - key(b) : key(a).localeCompare(key(b)));
      body.append(...(down ? rows : rows.reverse()));
    });
  });
}
// Of cards: A10 is not A100, where a card has that very word.
function finder(rows, text, word) {
  const whole = new RegExp(`(^|[^a-z0-9])${word.replace(/[^a-z0-9\s]/g, "\\$&")}($|[^a-z0-9])`);
  if (word && rows.some((row) => row.dataset.words !== undefined && whole.test(text(row)))) return (row) => whole.test(text(row));
  return (row) => text(row).includes(word);
}
// Whether a driver is as new as the oldest that runs it, as far as it was typed.
function runs(oldest, typed) {
  if (oldest === undefined) return false;
  const numbers = (version) => version.split(".").filter(Boolean).map(Number);
  const least = numbers(oldest);
  for (const [at, number] of numbers(typed).entries()) if (number !== (least[at] ?? 0)) return number > (least[at] ?? 0);
  return true;
}
for (const field of document.querySelectorAll("input[data-filter]")) {
  const rows = [...document.querySelectorAll(field.dataset.filter)];
  const text = (row) => (row.dataset.words ?? row.textContent).toLowerCase();
  field.hidden = false;
  field.addEventListener("input", () => {
    const phrase = field.value.trim().toLowerCase();
    // "driver 535" asks for what such a driver runs; of "450" alone the series is compared
    const driver = rows.some((row) => row.dataset.driver !== undefined) && /(?:driver|驱动)\s*(\d[\d.]*)/.exec(phrase);
    const rest = (driver ? phrase.replace(driver[0], " ") : phrase).trim();
    // "torch 2.7" as it stands, where anything has it; else each of its words
    const asked = rows.some((row) => text(row).includes(rest)) ? [rest] : rest.split(/\s+/);
    const tests = asked.map((word) => finder(rows, text, word));
    let shown = 0;
    for (const row of rows) {
      row.hidden = !(tests.every((test) => test(row)) && (!driver || runs(row.dataset.driver, driver[1])));
      shown += !row.hidden;
    }
    const count = document.getElementById(field.getAttribute("aria-describedby") ?? "");
    if (count) count.textContent = !phrase ? "" : shown ? `${shown}/${rows.length}` : field.dataset.empty ?? `0/${rows.length}`;
  });
}
// A link to a section that a search has hidden, or that is closed, shows it.
function reveal() {
  const place = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const closed = place?.closest("details");
  if (!closed) return;
  closed.hidden = false;
  closed.open = true;
  place.scrollIntoView();
}
addEventListener("hashchange", reveal);
reveal();
for (const place of document.querySelectorAll(".copy")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = document.documentElement.lang === "zh" ? "复制" : "copy";
  button.addEventListener("click", async () => {
    const text = place.querySelector("pre").textContent;
    try { await navigator.clipboard.writeText(text); button.textContent = "✓"; }
    catch { getSelection().selectAllChildren(place.querySelector("pre")); }
  });
  place.append(button);
}
