// Numbers as people read them; the exact value is for hovering.

const grouped = new Intl.NumberFormat("en-GB")

/** A count with separators, whatever its size. */
export function count(value: number | bigint | null | undefined): string {
  return value === null || value === undefined ? "–" : grouped.format(value)
}

/** A count in four characters or so: 950, 12.4k, 3.1M. */
export function brief(value: number): string {
  if (value < 10_000) return grouped.format(value)
  for (const [size, name] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]] as const) {
    if (value >= size) return `${(value / size).toFixed(value / size < 100 ? 1 : 0)}${name}`
  }
  return String(value)
}

/** A rate per second. */
export function rate(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–"
  if (value === 0) return "0/s"
  return value < 10 ? `${value.toFixed(value < 1 ? 2 : 1)}/s` : `${grouped.format(Math.round(value))}/s`
}

export function percent(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–"
  const hundred = value * 100
  return `${hundred > 0 && hundred < 10 ? hundred.toFixed(1) : Math.round(hundred)}\u00a0%`
}

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–"
  if (value < 1024) return `${value} B`
  const kib = value / 1024
  return kib < 1024 ? `${kib.toFixed(kib < 10 ? 1 : 0)} KiB` : `${(kib / 1024).toFixed(kib < 10_240 ? 1 : 0)} MiB`
}

/** "1 job", "3 jobs". */
export function many(value: number, one: string, more = `${one}s`): string {
  return `${grouped.format(value)} ${value === 1 ? one : more}`
}
