"""`penstock schema`: the JSON schema of the files of pipelines, for editors."""

from __future__ import annotations

import json

from penstock.pipeline.json_schema import installed_plugins, json_schema


def schema() -> None:
    """Print the JSON schema of pipelines, with the plugins that are installed: editors complete and check with it.

    \b
    Examples:
      penstock schema > pipeline.schema.json
      # then, as the first line of a pipeline:
      #   # yaml-language-server: $schema=pipeline.schema.json
    """
    print(json.dumps(json_schema(installed_plugins()), indent=2, ensure_ascii=False))
