"""Which object storage a URL names, and what is refused."""

import pytest

from windlass import Windlass
from windlass.errors import InvalidOption
from windlass.values.place import read_url


@pytest.mark.parametrize(
    ("url", "kind", "bucket", "prefix"),
    [
        ("s3://shop", "s3", "shop", ""),
        ("s3://shop/large/values/", "s3", "shop", "large/values"),
        ("s3://shop?region=eu-central-1&endpoint=http://localhost:9000", "s3", "shop", ""),
        ("gs://shop/large", "gs", "shop", "large"),
        ("az://shop/large?account=ours", "az", "shop", "large"),
        ("file:///var/lib/shop/large%20values/", "file", "", "/var/lib/shop/large values"),
    ],
)
def test_a_url_names_a_place(url: str, kind: str, bucket: str, prefix: str) -> None:
    place = read_url(url)
    assert (place.kind, place.bucket, place.prefix) == (kind, bucket, prefix)


@pytest.mark.parametrize(
    "endpoint", ["http://AKIAPLANTED:planted-secret@minio", "minio:9000", "file:///planted"]
)
def test_an_endpoint_is_a_url_without_keys(endpoint: str) -> None:
    with pytest.raises(InvalidOption, match="the endpoint of values is a URL without keys") as caught:
        Windlass("memory://", values=f"s3://shop?endpoint={endpoint}")
    assert "planted" not in str(caught.value).lower()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://shop", "values names object storage: s3://bucket/prefix"),
        ("s3://[::1", "values names object storage: s3://bucket/prefix"),
        ("shop", "values names object storage: s3://bucket/prefix"),
        ("s3:///prefix", "values names no bucket"),
        ("s3://shop?colour=red", 'values has no option "colour" for s3://; options: endpoint, region'),
        ("file://host/var", "values names a folder by its whole path"),
        ("file:///", "values names a folder by its whole path"),
        ("file:///var/../etc", "without .."),
        ("s3://shop/a/../../b", "without .."),
    ],
)
def test_what_names_no_place_is_refused(url: str, words: str) -> None:
    with pytest.raises(InvalidOption, match=words.replace("?", r"\?").replace(".", r"\.")):
        Windlass("memory://", values=url)


def test_a_key_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidOption) as caught:
        Windlass("memory://", values="s3://AKIAPLANTED:planted-secret@shop/large")
    assert "planted" not in str(caught.value).lower()
    assert "AWS_SECRET_ACCESS_KEY" in str(caught.value)


def test_every_setting_is_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("", "file:///tmp/v"), ("_OVER", "1000"), ("_KEPT", "30d")):
        monkeypatch.setenv(f"WINDLASS_VALUES{name}", text)
    monkeypatch.setenv("WINDLASS_MAX_VALUE", "9000000")
    config = Windlass("memory://").config
    assert (config.values, config.values_over, config.max_value) == ("file:///tmp/v", 1_000, 9_000_000)
    assert config.values_kept == 30 * 86_400_000_000
    assert config.largest == 9_000_000


def test_without_object_storage_the_limit_is_that_of_the_store() -> None:
    config = Windlass("memory://", max_value=9_000_000).config
    assert config.largest == config.max_payload


def test_nothing_between_the_two_limits_is_left_out() -> None:
    settings = Windlass("memory://", values="file:///tmp/v", max_payload=1_000).config.value_settings
    assert settings is not None
    assert settings.over == settings.most_inside == 1_000
