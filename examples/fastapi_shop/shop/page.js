// Starts a report and shows how far it is.
const form = document.querySelector("form")
const bar = document.querySelector("progress")
const said = document.querySelector("output")

form.addEventListener("submit", async (event) => {
  event.preventDefault()
  const tenant = encodeURIComponent(new FormData(form).get("tenant"))
  const { job } = await (await fetch(`/${tenant}/reports`, { method: "POST" })).json()
  for (;;) {
    const { state, fraction, message } = await (await fetch(`/jobs/${job}`)).json()
    bar.value = state === "done" ? 1 : fraction
    said.textContent = `${state} ${message}`
    if (["done", "dead", "cancelled"].includes(state)) return
    await new Promise((resolve) => setTimeout(resolve, 200))
  }
})
