import { vitePreprocess } from "@sveltejs/vite-plugin-svelte"

// What scrolls has to be reachable by keyboard (axe: scrollable-region-focusable), which needs a tabindex.
const AGREED = new Set(["a11y_no_noninteractive_tabindex"])

export default {
  preprocess: vitePreprocess(),
  compilerOptions: { runes: true, warningFilter: (warning) => !AGREED.has(warning.code) },
}
