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
for (const field of document.querySelectorAll("input[data-filter]")) {
  const rows = [...document.querySelectorAll(field.dataset.filter)];
  const text = (row) => (row.dataset.words ?? row.textContent).toLowerCase();
  field.hidden = false;
  field.addEventListener("input", () => {
    const phrase = field.value.trim().toLowerCase();
    // "torch 2.7" as it stands, where anything has it; else each of its words
    const asked = rows.some((row) => text(row).includes(phrase)) ? [phrase] : phrase.split(/\s+/);
    let shown = 0;
    for (const row of rows) {
      row.hidden = !asked.every((word) => text(row).includes(word));
      shown += !row.hidden;
    }
    const count = document.getElementById(field.getAttribute("aria-describedby") ?? "");
    if (count) count.textContent = phrase ? `${shown}/${rows.length}` : "";
  });
}
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
