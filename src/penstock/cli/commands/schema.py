"""`penstock schema`: the JSON schema of the files of pipelines, for editors."""

from __future__ import annotations

import json

from penstock.pipeline.json_schema import installed_plugins, json_schema


def schema() -> None:
    """Print the JSON schema of pipelines, for editors.

    They complete and check with it what is typed. It has the plugins that are installed, too.

    \b
    Examples:
      penstock schema > pipeline.schema.json
      # then, as the first line of a pipeline:
      #   # yaml-language-server: $schema=pipeline.schema.json
    """
    print(json.dumps(json_schema(installed_plugins()), indent=2, ensure_ascii=False))
