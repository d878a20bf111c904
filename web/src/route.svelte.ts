// Where the viewer is: the path and the query of the address, so that every view can be shared and gone back to.
import { base } from "./base"

class Route {
  /** Within the dashboard: "/jobs", wherever it is served. */
  path = $state(within(location.pathname))
  query = $state(new URLSearchParams(location.search))

  constructor() {
    addEventListener("popstate", () => this.read())
  }

  /** The parts of the path, decoded: "/jobs/1" is ["jobs", "1"]. */
  get parts(): string[] {
    return this.path.split("/").filter(Boolean).map(decoded)
  }

  go(to: string, { replace = false } = {}): void {
    if (to === within(location.pathname) + location.search) return
    history[replace ? "replaceState" : "pushState"](null, "", base + to)
    const moved = within(location.pathname) !== this.path
    this.read()
    if (moved) scrollTo(0, 0)
  }

  /** Change some of the query; what is empty goes. */
  set(changes: Record<string, string | string[] | null>, { replace = true } = {}): void {
    const query = new URLSearchParams(this.query)
    for (const [name, value] of Object.entries(changes)) {
      query.delete(name)
      for (const each of Array.isArray(value) ? value : [value]) if (each) query.append(name, each)
    }
    const text = query.toString()
    this.go(text ? `${this.path}?${text}` : this.path, { replace })
  }

  private read(): void {
    this.path = within(location.pathname)
    this.query = new URLSearchParams(location.search)
  }
}

/** A path without that of the dashboard. */
function within(path: string): string {
  return path.slice(base.length) || "/"
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}

export const route = new Route()

/** Follow links inside of the page without loading it anew; what a browser would open elsewhere, it opens. */
export function onLink(event: MouseEvent): void {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return
  const link = (event.target as Element).closest("a")
  if (!link || link.target || link.origin !== location.origin || link.hasAttribute("download")) return
  if (!`${link.pathname}/`.startsWith(`${base}/`) || link.getAttribute("href")?.startsWith("#")) return
  const path = within(link.pathname)
  if (path.startsWith("/v1/") || path === "/openapi.json") return
  event.preventDefault()
  route.go(path + link.search)
}
