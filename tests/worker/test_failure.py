from windlass.worker.failure import MESSAGE_CHARS, TRACEBACK_CHARS, as_error, clipped, fingerprint


def fail(error: type[BaseException], message: object) -> None:
    password = "hunter" + "2"
    assert password
    raise error(message)


def caught(error: type[BaseException], message: object = "") -> BaseException:
    try:
        fail(error, message)
    except BaseException as found:  # noqa: BLE001
        return found
    raise AssertionError


class Rude(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


def test_an_error_is_kept_as_text() -> None:
    kept = as_error(caught(ValueError, "wrong"), retryable=True)
    assert (kept.type, kept.message, kept.retryable) == ("ValueError", "wrong", True)
    assert "raise error(message)" in kept.traceback
    assert "hunter2" not in kept.traceback


def test_classes_are_named_with_their_module() -> None:
    assert as_error(Rude(), retryable=True).type.endswith("test_failure.Rude")


def test_an_error_without_a_readable_text_is_kept() -> None:
    assert as_error(caught(Rude), retryable=False).message == "<its text cannot be read>"


def test_causes_are_named() -> None:
    try:
        try:
            fail(KeyError, "a")
        except KeyError as inner:
            raise ValueError("b") from inner
    except ValueError as error:
        kept = as_error(error, retryable=True)
    assert kept.cause == "KeyError"
    assert "KeyError: 'a'" in kept.traceback


def test_long_texts_are_cut() -> None:
    kept = as_error(caught(ValueError, "x" * 100_000), retryable=True)
    assert len(kept.message) == MESSAGE_CHARS
    assert len(kept.traceback) <= TRACEBACK_CHARS + 3


def test_texts_that_no_store_keeps_are_mended() -> None:
    assert clipped("a\ud800b\0c", 10) == "a?b␀c"


def test_a_recursion_is_kept() -> None:
    def deeper() -> None:
        deeper()

    try:
        deeper()
    except RecursionError as error:
        kept = as_error(error, retryable=True)
    assert kept.type == "RecursionError"
    assert len(kept.traceback) <= TRACEBACK_CHARS + 3


def test_fingerprints_tell_places_and_classes_apart_not_messages() -> None:
    def other_place() -> BaseException:
        try:
            fail(ValueError, "1")
        except ValueError as error:
            return error

    one, again = caught(ValueError, "1"), caught(ValueError, "2")
    assert fingerprint(one) == fingerprint(again)
    assert fingerprint(one) != fingerprint(caught(KeyError, "1"))
    assert fingerprint(one) != fingerprint(other_place())
