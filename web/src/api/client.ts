// Requests to the API. Every answer is parsed without loss; every refusal becomes a Problem that says what to do.
import { base } from "../base"
import { parse, write, type Json } from "./json"

export interface FieldProblem {
  field: string
  detail: string
}

export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly detail: string,
    readonly errors: FieldProblem[] = [],
    readonly kind = "",
  ) {
    super(detail)
  }

  /** Nobody answered: the server is away, or the network. */
  get away(): boolean {
    return this.status === 0 || this.status === 502 || this.status === 503 || this.status === 504
  }
}

export type Query = Record<string, string | number | boolean | null | undefined | readonly string[]>

export interface Options {
  query?: Query
  body?: unknown
  signal?: AbortSignal
  headers?: Record<string, string>
}

type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE"

/** Called when a key is needed, or no longer good. */
let onUnauthorized: () => void = () => undefined
export function whenUnauthorized(act: () => void): void {
  onUnauthorized = act
}

export function address(path: string, query: Query = {}): string {
  const given = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) {
    if (Array.isArray(value)) value.forEach((each: string) => given.append(name, each))
    else if (value !== null && value !== undefined && value !== "") given.set(name, String(value))
  }
  const text = given.toString()
  return text ? `${path}?${text}` : path
}

async function send(method: Method, path: string, options: Options = {}): Promise<Json> {
  const headers: Record<string, string> = { accept: "application/json", ...options.headers }
  if (method !== "GET") headers["x-windlass-dashboard"] = "1"
  if (options.body !== undefined) headers["content-type"] = "application/json"
  let response: Response
  let text: string
  try {
    response = await fetch(base + address(path, options.query), {
      method,
      headers,
      body: options.body === undefined ? null : write(options.body),
      credentials: "same-origin",
      cache: "no-store",
      signal: options.signal ?? null,
    })
    text = await response.text()
  } catch (error) {
    if (options.signal?.aborted) throw error
    throw new Problem(0, "the server does not answer")
  }
  if (response.ok) return text ? parse(text) : null
  const problem = problemOf(response.status, text)
  if (response.status === 401) onUnauthorized()
  throw problem
}

function problemOf(status: number, text: string): Problem {
  try {
    const told = parse(text) as { detail?: string; errors?: FieldProblem[]; type?: string }
    if (told && typeof told.detail === "string") {
      return new Problem(status, told.detail, told.errors ?? [], told.type ?? "")
    }
  } catch {
    // not a problem document: a proxy in between may answer in HTML
  }
  return new Problem(status, `the server answered ${status}`)
}

export const get = <T>(path: string, query?: Query, signal?: AbortSignal) =>
  send("GET", path, { query, signal } as Options) as Promise<T>
export const post = <T>(path: string, body?: unknown, options: Options = {}) =>
  send("POST", path, { ...options, body }) as Promise<T>
export const put = <T>(path: string, body?: unknown) => send("PUT", path, { body }) as Promise<T>
export const patch = <T>(path: string, body?: unknown) => send("PATCH", path, { body }) as Promise<T>
export const remove = <T>(path: string, query?: Query) => send("DELETE", path, { query } as Options) as Promise<T>

/** A name as a part of a path. */
export const part = (name: string) => encodeURIComponent(name)

/** What to say of an error. */
export function said(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
