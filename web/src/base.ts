// The path under which the dashboard is served: "" on a server of its own, "/queue" inside of another application.
// The server writes it into the page.
const told = document.querySelector<HTMLMetaElement>('meta[name="windlass-base"]')?.content ?? "/"
export const base = told.replace(/\/$/, "")
