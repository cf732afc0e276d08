"""Digests: md5, sha, crc32 and Spark's own hashes."""

from __future__ import annotations

import hashlib
import zlib

import pyarrow as pa

from penstock.data.types import kernel_type, parse
from penstock.functions.scalars.base import (
    Build,
    Columns,
    Compiled,
    Datum,
    Scalar,
    TickLike,
    array,
    only,
    row_wise,
)
from penstock.functions.scalars.hashes import MURMUR, XXHASH, Algorithm, hashed
from penstock.plan.expression import Call

_SHA2 = {
    0: hashlib.sha256,
    224: hashlib.sha224,
    256: hashlib.sha256,
    384: hashlib.sha384,
    512: hashlib.sha512,
}


def _sha2(data: bytes, bits: int) -> str | None:
    digest = _SHA2.get(bits)
    return None if digest is None else digest(data).hexdigest()


def _hash(algorithm: Algorithm) -> Build:
    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        kind = kernel_type(call.type)
        seed = int(call.option("seed"))

        def run(columns: Columns, length: int, tick: TickLike) -> Datum:
            values = [array(item(columns, length, tick), length) for item in args]
            return pa.array(hashed(algorithm, values, seed, length), kind)

        return run

    return build


def _hash_check(call: Call) -> str | None:
    return next((f"{call.name} over {item.type}" for item in call.args if not hashable(item.type)), None)


def hashable(kind: str) -> bool:
    """Whether Spark's hashes of values of a type are the kernel's."""
    parsed = parse(kind)
    if parsed.kind in ("array", "struct"):
        return all(hashable(inner) for inner in parsed.inner)
    return parsed.kind not in ("map", "interval", "variant") and "collate" not in kind


FUNCTIONS: dict[str, Scalar] = {
    "Md5": Scalar(row_wise(lambda data: hashlib.md5(data).hexdigest()), only("binary")),
    "Sha1": Scalar(row_wise(lambda data: hashlib.sha1(data).hexdigest()), only("binary")),
    "Sha2": Scalar(row_wise(_sha2), only("binary", first=1)),
    "Crc32": Scalar(row_wise(zlib.crc32), only("binary")),
    "Murmur3Hash": Scalar(_hash(MURMUR), _hash_check),
    "XxHash64": Scalar(_hash(XXHASH), _hash_check),
}
