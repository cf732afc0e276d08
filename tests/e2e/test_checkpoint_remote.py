"""A checkpoint in an object store is removed as a local one is."""

from __future__ import annotations

import pytest
from pyarrow import fs

from penstock.backend.checkpoint import remove_checkpoint
from penstock.errors import PenstockError
from servers.s3 import ACCESS_KEY, SECRET_KEY, Store


def test_a_checkpoint_in_s3(s3: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    bucket = s3.new_bucket()
    store = fs.S3FileSystem(
        access_key=ACCESS_KEY, secret_key=SECRET_KEY, endpoint_override=s3.endpoint, region="us-east-1"
    )

    def write(name: str) -> None:
        with store.open_output_stream(f"{bucket}/{name}") as stream:
            stream.write(b"{}")

    def names() -> set[str]:
        return {
            entry.path.removeprefix(f"{bucket}/")
            for entry in store.get_file_info(fs.FileSelector(bucket, recursive=True))
            if entry.type is fs.FileType.File
        }

    for name in ("ck/metadata", "ck/offsets/0", "ck/state/0/0/1.delta", "other/keep"):
        write(name)
    place = f"s3a://{bucket}/ck"
    write("ck/thesis.txt")
    with pytest.raises(PenstockError, match=r"thesis\.txt"):
        remove_checkpoint(place)
    store.delete_file(f"{bucket}/ck/thesis.txt")
    assert remove_checkpoint(place)
    assert names() == {"other/keep"}
    assert not remove_checkpoint(place)
    assert not remove_checkpoint("s3://no-such-bucket-here/ck")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(PenstockError) as caught:
        remove_checkpoint(place)
    assert caught.value.code == "STATE_CHECKPOINT"
    with pytest.raises(PenstockError) as caught:
        remove_checkpoint("strange://there/ck")
    assert caught.value.code == "STATE_CHECKPOINT"
