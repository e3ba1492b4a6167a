"""A language model behind the OpenAI API: vLLM on Ray Serve. The image needs ray[llm] (docs/serving.md).

    service:
      application: workloads.serving.llm:app
      deployment: LLMServer:MODEL
      arguments: [model=MODEL, source=/bucket/models/MODEL, max_model_len=32768]

No GPU has run it (2026-11).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from workloads.exits import WorkloadError


def llm_config(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of Ray's LLMConfig.

    Arguments: model, the name that requests use; source, a folder or a repository of Hugging Face; gpus_per_replica,
    the tensor-parallel size; all others are vLLM's engine arguments.
    """
    engine = {name: yaml.safe_load(value) if isinstance(value, str) else value for name, value in arguments.items()}
    gpus = engine.pop("gpus_per_replica")
    model, source = engine.pop("model", None), engine.pop("source", None)
    if not (isinstance(model, str) and isinstance(source, str)):
        raise WorkloadError("service.arguments: set model=NAME and source=FOLDER, or source=OWNER/MODEL")
    return {
        "model_loading_config": {"model_id": model, "model_source": source},
        "engine_kwargs": {"tensor_parallel_size": gpus, **engine},
        # All ranks of a tensor-parallel group on one node, where NVLink connects them. The default, PACK, may spread
        # them over nodes (Ray 2.60: llm/_internal/serve/engines/vllm/vllm_models.py).
        "placement_group_config": {"bundle_per_worker": {"CPU": 1, "GPU": 1}, "strategy": "STRICT_PACK"},
    }


def app(arguments: Mapping[str, Any]) -> Any:
    """Return the application. The image's Ray checks the fields."""
    from ray.serve.llm import LLMConfig, build_openai_app

    return build_openai_app({"llm_configs": [LLMConfig(**llm_config(arguments))]})
