"use strict";
// The answer in place, files dropped, progress as it comes; everything works without it by whole pages.
const form = document.getElementById("ask");
async function part(address, options, id, focus) {
  const answer = await fetch(address, options);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const fresh = page.getElementById(id), old = document.getElementById(id);
  if (fresh && old) old.replaceWith(document.importNode(fresh, true));
  else if (old) old.textContent = page.body.textContent;
  if (focus) document.getElementById(id)?.focus();
  follow();
}
let source = null;
function follow() {
  source?.close();
  const job = document.querySelector("[data-job]");
  if (!job || job.dataset.over === "1") return;
  const log = job.querySelector("[data-log]"), own = new EventSource(`/jobs/${job.dataset.job}/events`);
  source = own;
  own.addEventListener("open", () => { job.querySelector("[data-plain]")?.remove(); log.textContent = ""; }, { once: true });
  own.addEventListener("log", (event) => { log.textContent += JSON.parse(event.data); log.scrollTop = log.scrollHeight; });
  own.addEventListener("progress", (event) => {
    const now = JSON.parse(event.data), bar = job.querySelector("[data-far]"), step = job.querySelector("[data-line]");
    if (now.state === "running") job.querySelector(".badge").textContent = job.dataset.running;
    if (now.step && step.textContent !== now.step) step.textContent = now.step;
    job.querySelector("[data-far-line]").textContent = now.line === now.step ? "" : now.line;
    bar.hidden = !now.total;
    if (now.total) Object.assign(bar, { max: now.total, value: now.done });
  });
  own.addEventListener("over", () => { own.close(); part(`/jobs/${job.dataset.job}?language=${document.documentElement.lang}`, {}, "job"); });
}
form?.addEventListener("submit", (event) => {
  if (event.submitter?.name === "do") return;
  event.preventDefault();
  document.getElementById("answer").setAttribute("aria-busy", "true");
  part(form.getAttribute("action"), { method: "POST", body: new URLSearchParams(new FormData(form)) }, "answer", true);
});
for (const field of document.querySelectorAll("[data-drop]")) {
  field.addEventListener("input", () => field.setCustomValidity(""));
  field.addEventListener("dragover", (event) => { event.preventDefault(); field.classList.add("over"); });
  field.addEventListener("dragleave", () => field.classList.remove("over"));
  field.addEventListener("drop", async (event) => {
    event.preventDefault();
    field.classList.remove("over");
    const file = event.dataTransfer.files[0];
    const isLarge = file && file.size > 200000;
    field.setCustomValidity(isLarge ? field.dataset.tooLarge : "");
    if (isLarge) field.reportValidity();
    if (!file || isLarge) return;
    field.value = await file.text();
    form.elements.file.value = file.name;
  });
}
follow();
