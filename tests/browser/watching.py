"""A page that is not silent about errors."""

from playwright.sync_api import ConsoleMessage, Page


class Complaints:
    """What a page said on its console that it should not have."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.expected: list[str] = []

    def expect(self, text: str) -> None:
        """Let one pass that is meant."""
        self.expected.append(text)

    def on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.found.append(f"{message.type}: {message.text}")

    def on_error(self, error: object) -> None:
        self.found.append(f"uncaught: {error}")

    def check(self) -> None:
        left = [each for each in self.found if not any(text in each for text in self.expected)]
        assert not left, left


def watched(page: Page, complaints: Complaints) -> Page:
    """A page whose complaints are kept."""
    page.on("console", complaints.on_console)
    page.on("pageerror", complaints.on_error)
    return page
