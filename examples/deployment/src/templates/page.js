const problem = document.querySelector("#problem");

async function send(path, options) {
  const response = await fetch(path, { method: "POST", ...options });
  problem.textContent = response.ok ? "" : (await response.json()).detail ?? response.statusText;
  return response.ok;
}

const json = (value) => ({
  headers: { "content-type": "application/json" },
  body: JSON.stringify(value),
});

function onSubmit(selector, act) {
  document.querySelector(selector)?.addEventListener("submit", (event) => {
    event.preventDefault();
    act(event.target, event.submitter);
  });
}

onSubmit("#login", async (form, button) => {
  if (await send(button.value, json(Object.fromEntries(new FormData(form))))) location.reload();
});
onSubmit("#note", async (form) => {
  if (await send("/api/notes", json({ text: form.elements.text.value }))) form.reset();
});
onSubmit("#file", async (form) => {
  if (await send("/api/files", { body: new FormData(form) })) form.reset();
});
document.querySelector("#logout")?.addEventListener("click", async () => {
  if (await send("/api/logout")) location.reload();
});

// The feed begins with recent notes, so that none is missed between the page and the feed. Most of
// them are shown already.
const notes = document.querySelector("#notes");

new EventSource("/feed").addEventListener("note", (event) => {
  const note = JSON.parse(event.data);
  if (notes.querySelector(`[data-id="${note.id}"]`)) return;
  const item = document.createElement("li");
  item.dataset.id = note.id;
  item.textContent = `${note.author}: ${note.text}`;
  notes.prepend(item);
});
