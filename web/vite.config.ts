// Builds the dashboard into the package. Everything is an external file: the server's Content-Security-Policy
// allows no inline script or style.
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { gzipSync } from "node:zlib"
import { svelte } from "@sveltejs/vite-plugin-svelte"
import { defineConfig, type Plugin } from "vite"

/** Fail the build when what a first visit loads grows beyond a budget: all scripts and styles, compressed. */
function budget(most: number): Plugin {
  return {
    name: "windlass-budget",
    writeBundle({ dir }, bundle) {
      const sizes = Object.keys(bundle).map((name) => gzipSync(readFileSync(join(dir!, name)), { level: 9 }).length)
      const total = sizes.reduce((sum, size) => sum + size, 0)
      this.info(`first load: ${(total / 1000).toFixed(1)} kB compressed, of ${most / 1000} kB`)
      if (total > most) this.error(`first load is ${total} bytes compressed; the budget is ${most}`)
    },
  }
}

export default defineConfig({
  base: "/",
  plugins: [svelte(), budget(150_000)],
  build: {
    target: "es2022",
    outDir: "../src/windlass/api/static",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    modulePreload: { polyfill: false },
    sourcemap: false,
    rollupOptions: { output: { entryFileNames: "assets/[name]-[hash].js", assetFileNames: "assets/[name]-[hash][extname]" } },
  },
  server: { proxy: { "/v1": "http://127.0.0.1:8700" } },
})
