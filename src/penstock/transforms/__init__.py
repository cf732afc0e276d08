"""What happens to rows between the sources and the sinks of a pipeline: one kind of transform per file or folder."""

from __future__ import annotations

from penstock.registry import Registry

TRANSFORMS = Registry(
    "transform",
    {
        "expect": "penstock.transforms.expect:ExpectTransform",
        "handler": "penstock.transforms.handler.transform:HandlerTransform",
        "script": "penstock.transforms.script.transform:ScriptTransform",
        "lookup": "penstock.transforms.lookup.transform:LookupTransform",
    },
    group="penstock.transforms",
)
