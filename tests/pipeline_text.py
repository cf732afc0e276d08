"""Pipelines of texts and files, with the settings that the variables of a test give."""

from __future__ import annotations

import os
from collections.abc import Mapping

from penstock import config
from penstock.config import Settings
from penstock.pipeline import load as loading
from penstock.pipeline.load import Checked
from penstock.pipeline.spec import PipelineSpec


def check_text(
    text: str,
    path: str = "pipeline.yaml",
    *,
    settings: Settings | None = None,
    environ: Mapping[str, str] | None = None,
) -> Checked:
    """As `penstock.pipeline.load.check_text`; without settings they are read from the same variables."""
    return loading.check_text(text, path, settings=settings or config.load(environ), environ=environ)


def check(
    path: str | os.PathLike[str],
    *,
    settings: Settings | None = None,
    environ: Mapping[str, str] | None = None,
) -> Checked:
    """As `penstock.pipeline.load.check`; without settings they are read from the same variables."""
    return loading.check(path, settings=settings or config.load(environ), environ=environ)


def load(path: str | os.PathLike[str], *, environ: Mapping[str, str] | None = None) -> PipelineSpec:
    """As `penstock.pipeline.load.load`, with settings that are read from the same variables."""
    return loading.load(path, settings=config.load(environ), environ=environ)
