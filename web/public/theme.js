// Before the first paint, so that a chosen theme does not flash.
try {
  const chosen = localStorage.getItem("windlass-theme")
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen
} catch {
  // storage is switched off: the system's theme it is
}
