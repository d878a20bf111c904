// Builds the dashboard into the package. Everything is an external file: the server's Content-Security-Policy
// allows no inline script or style.
import { gzipSync } from "node:zlib"
import { svelte } from "@sveltejs/vite-plugin-svelte"
import { defineConfig, type Plugin } from "vite"

/** Fail the build when what a first visit loads grows beyond a budget. */
function budget(most: number): Plugin {
  return {
    name: "windlass-budget",
    generateBundle(_, bundle) {
      let total = 0
      for (const file of Object.values(bundle)) {
        total += gzipSync(file.type === "chunk" ? file.code : file.source, { level: 9 }).length
      }
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
