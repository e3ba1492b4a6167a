"""GPT of Megatron-Core on CPUs: trains by the given sizes, then alone, and prints both losses and its groups.

Megatron-Core itself is unchanged. It asks for CUDA where a CPU serves as well, so this script answers.
"""

import argparse
import json
import os
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

torch.cuda.current_device = lambda: torch.device("cpu")  # type: ignore[assignment, return-value]

from megatron.core import parallel_state as state  # noqa: E402
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: E402
from megatron.core.pipeline_parallel import get_forward_backward_func  # noqa: E402
from megatron.core.tensor_parallel.random import CudaRNGStatesTracker  # noqa: E402
from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: E402

CudaRNGStatesTracker.fork = lambda *_: nullcontext()
SEQUENCE, BATCH, VOCABULARY, STEPS = 64, 4, 128, 5


class OnCpu(TorchFunctionMode):
    """Pipelines count their tokens in a tensor on "cuda" (megatron/core/pipeline_parallel/schedules.py, 0.16.1)."""

    def __torch_function__(
        self, function: Callable[..., Any], _: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        keywords = keywords or {}
        return function(*arguments, **keywords | ({"device": "cpu"} if keywords.get("device") == "cuda" else {}))


def initialize(weight: torch.Tensor) -> torch.Tensor:
    """Fill a whole weight, of which Megatron-Core keeps this rank's part, in whatever order a stage has its layers."""
    return torch.nn.init.normal_(weight, std=0.02, generator=torch.Generator().manual_seed(weight.numel()))


def losses(tp: int, pp: int) -> list[float]:
    """Train in groups of these sizes; return the loss of each step on the last stage, and nothing on others."""
    state.destroy_model_parallel()
    state.initialize_model_parallel(tensor_model_parallel_size=tp, pipeline_model_parallel_size=pp)
    config = TransformerConfig(
        num_layers=2,
        hidden_size=32,
        num_attention_heads=4,
        tensor_model_parallel_size=tp,
        pipeline_model_parallel_size=pp,
        pipeline_dtype=torch.float32,
        use_cpu_initialization=True,
        init_method=initialize,
        output_layer_init_method=initialize,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        gradient_accumulation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        batch_p2p_comm=False,
    )
    model = GPTModel(
        config,
        get_gpt_layer_local_spec(),
        VOCABULARY,
        SEQUENCE,
        pre_process=state.is_pipeline_first_stage(),
        post_process=state.is_pipeline_last_stage(),
    )
    tokens = torch.randint(VOCABULARY, (BATCH, SEQUENCE + 1), generator=torch.Generator().manual_seed(1))
    positions = torch.arange(SEQUENCE).expand(BATCH, SEQUENCE)
    later = torch.triu(torch.ones(SEQUENCE, SEQUENCE, dtype=torch.bool), 1)[None, None]

    def forward(_: object, part: GPTModel) -> Any:
        each = part(tokens[:, :-1], positions, later, labels=tokens[:, 1:].contiguous())
        return each, lambda found: (found.mean(), {"loss": found.mean().item()})

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    found = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        found += get_forward_backward_func()(
            forward_step_func=forward,
            data_iterator=None,
            model=model,
            num_microbatches=1,
            seq_length=SEQUENCE,
            micro_batch_size=BATCH,
            forward_only=False,
        )
        optimizer.step()
    return [one["loss"] for one in found]


def groups() -> list[list[int]]:
    """Return the ranks of this rank's groups: tensor, context, data, expert, expert data, pipeline."""
    found = (
        state.get_tensor_model_parallel_group,
        state.get_context_parallel_group,
        state.get_data_parallel_group,
        state.get_expert_model_parallel_group,
        state.get_expert_data_parallel_group,
        state.get_pipeline_model_parallel_group,
    )
    return [dist.get_process_group_ranks(group()) for group in found]


def groups_of(tp: int, cp: int, ep: int, pp: int) -> list[list[int]]:
    """Return the groups of other sizes."""
    state.destroy_model_parallel()
    state.initialize_model_parallel(
        tensor_model_parallel_size=tp,
        context_parallel_size=cp,
        expert_model_parallel_size=ep,
        pipeline_model_parallel_size=pp,
    )
    return groups()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tensor-model-parallel-size", type=int, dest="tp")
    parser.add_argument("--pipeline-model-parallel-size", type=int, dest="pp")
    parser.add_argument("--also", type=int, nargs=4, action="append", default=[], metavar=("TP", "CP", "EP", "PP"))
    sizes = parser.parse_args()
    dist.init_process_group("gloo")
    with OnCpu():
        found: dict[str, Any] = {"losses": losses(sizes.tp, sizes.pp)}
        found["groups"] = groups()
        found["alone"] = losses(1, 1)
    found["also"] = [groups_of(*other) for other in sizes.also]
    found["variables"] = [os.environ[f"RDMA_RAY_{kind}"] for kind in ("TP", "CP", "EP", "DP", "PP")]
    print(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
