// Times in the viewer's zone: short to read, exact on hover.

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false })
const day = new Intl.DateTimeFormat(undefined, { day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit", hour12: false })
const year = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short", hour12: false })
const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "medium", hour12: false })

export const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC"

/** A time, as short as it can be told apart from others: today's as a clock. */
export function short(at: string, now = Date.now()): string {
  const date = new Date(at)
  const away = Math.abs(date.getTime() - now)
  if (Number.isNaN(away)) return at
  if (new Date(now).toDateString() === date.toDateString()) return clock.format(date)
  return away < 300 * 86_400_000 ? day.format(date) : year.format(date)
}

/** The exact value, for hovering: the viewer's zone, and UTC to the microsecond as the store has it. */
export function exact(at: string): string {
  const date = new Date(at)
  return Number.isNaN(date.getTime()) ? at : `${whole.format(date)} (${zone})\n${at}`
}

/** Between a number and its unit: they stay on one line. */
const GAP = "\u00a0"

const UNITS: [number, string][] = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "min"],
  [1, "s"],
]

/** A length of time in words: "340 ms", "4.2 s", "14 min", "3 h 20 min". */
export function length(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "–"
  const size = Math.abs(seconds)
  if (size === 0) return `0${GAP}s`
  if (size < 0.001) return `${Math.max(1, Math.round(size * 1e6))}${GAP}µs`
  if (size < 1) return `${Math.round(size * 1000)}${GAP}ms`
  if (size < 10) return `${size.toFixed(1)}${GAP}s`
  for (const [index, [unit, name]] of UNITS.entries()) {
    if (size >= unit) {
      const count = Math.floor(size / unit)
      const next = UNITS[index + 1]
      const rest = next && count < 10 && unit > 60 ? Math.floor((size % unit) / next[0]) : 0
      return rest && next ? `${count}${GAP}${name} ${rest}${GAP}${next[1]}` : `${count}${GAP}${name}`
    }
  }
  return `${size}${GAP}s`
}

/** How far away a time is: "3 min ago", "in 2 h". */
export function ago(at: string, now = Date.now()): string {
  const seconds = (now - new Date(at).getTime()) / 1000
  if (Number.isNaN(seconds)) return at
  const size = seconds >= 0 ? Math.floor(seconds) : Math.ceil(-seconds)
  // A moment ahead is now: the page's clock ticks once a second, and may be behind the server's.
  if (size === 0 || (seconds < 0 && seconds > -1.5)) return "now"
  const told = size < 60 ? `${size}${GAP}s` : length(size)
  return seconds >= 0 ? `${told} ago` : `in ${told}`
}
