"""What a status of HTTP is called (RFC 9110). Python 3.13 was the first to know the newer names of some."""

from http import HTTPStatus

_NEWER = {
    413: "Content Too Large",
    414: "URI Too Long",
    416: "Range Not Satisfiable",
    422: "Unprocessable Content",
}


def phrase(status: int) -> str:
    """The words behind a number, the same on every Python."""
    return _NEWER.get(status) or HTTPStatus(status).phrase
