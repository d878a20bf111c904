// Light or dark: the system's choice until the viewer makes another.

export type Choice = "system" | "light" | "dark"

class Theme {
  choice = $state<Choice>(stored())
  #system = $state(matchMedia("(prefers-color-scheme: dark)").matches)

  constructor() {
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => (this.#system = event.matches))
  }

  get dark(): boolean {
    return this.choice === "system" ? this.#system : this.choice === "dark"
  }

  choose(choice: Choice): void {
    if (choice === "system") delete document.documentElement.dataset.theme
    else document.documentElement.dataset.theme = choice
    this.choice = choice
    try {
      if (choice === "system") localStorage.removeItem("windlass-theme")
      else localStorage.setItem("windlass-theme", choice)
    } catch {
      // storage is switched off: it holds until the page is left
    }
  }
}

function stored(): Choice {
  const chosen = document.documentElement.dataset.theme
  return chosen === "light" || chosen === "dark" ? chosen : "system"
}

export const theme = new Theme()
