"""Which object storage a URL names.

s3://bucket/prefix?region=eu-central-1    also MinIO and others: ?endpoint=http://localhost:9000
gs://bucket/prefix                        Google Cloud Storage
az://container/prefix?account=name        Azure Blob Storage
file:///var/lib/shop/values               a folder that all processes of the app see

Keys are never part of it: they are found where the provider's own tools look for them (variables such as
AWS_ACCESS_KEY_ID, the role of the machine).
"""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Literal, TypeAlias, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from windlass.errors import InvalidOption

Kind: TypeAlias = Literal["s3", "gs", "az", "file"]

_OPTIONS: Mapping[str, frozenset[str]] = {
    "s3": frozenset(("region", "endpoint")),
    "gs": frozenset(),
    "az": frozenset(("account", "endpoint")),
    "file": frozenset(),
}
_FORMS = "s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///a/folder"


class StorageUrl(msgspec.Struct, frozen=True, kw_only=True):
    """A bucket or a folder, and what the names of its objects begin with."""

    kind: Kind
    bucket: str = ""
    prefix: str = ""
    """In the bucket; of a folder, its path."""
    options: Mapping[str, str] = {}

    @property
    def shown(self) -> str:
        """For logs and errors."""
        return (
            f"file://{self.prefix}"
            if self.kind == "file"
            else f"{self.kind}://{self.bucket}/{self.prefix}".rstrip("/")
        )


def read_url(url: str, setting: str = "values") -> StorageUrl:
    """Read the URL of a setting. `InvalidOption` says what is wrong with it, and does not repeat what may be
    a key.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise InvalidOption(f"{setting} names object storage: {_FORMS}") from None
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    known = _OPTIONS.get(parts.scheme)
    if known is None or parts.fragment:
        raise InvalidOption(f"{setting} names object storage: {_FORMS}")
    if parts.username is not None or parts.password is not None:
        raise InvalidOption(
            f"{setting} has keys in its URL; leave them out and give them where the provider's tools look "
            "for them, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if strangers := options.keys() - known:
        those = ", ".join(sorted(known)) or "none"
        raise InvalidOption(
            f'{setting} has no option "{min(strangers)}" for {parts.scheme}://; options: {those}'
        )
    endpoint = urlsplit(options.get("endpoint", "https://host"))
    if endpoint.scheme not in ("http", "https") or "@" in endpoint.netloc or not endpoint.netloc:
        raise InvalidOption(
            f"the endpoint of {setting} is a URL without keys, such as https://minio.internal:9000"
        )
    path = unquote(parts.path)
    if ".." in PurePosixPath(path).parts:
        raise InvalidOption(f"{setting} names a folder or a prefix without ..: {_FORMS}")
    kind = cast("Kind", parts.scheme)
    if kind == "file":
        if parts.netloc or len(path) < 2:
            raise InvalidOption(
                f"{setting} names a folder by its whole path, such as file:///var/lib/shop/values"
            )
        return StorageUrl(kind=kind, prefix=path.rstrip("/"))
    if not parts.netloc:
        raise InvalidOption(f"{setting} names no bucket: {_FORMS}")
    return StorageUrl(kind=kind, bucket=parts.netloc, prefix=path.strip("/"), options=options)


def check_values_url(url: str) -> str:
    """Refuse a URL that names no object storage."""
    read_url(url)
    return url
