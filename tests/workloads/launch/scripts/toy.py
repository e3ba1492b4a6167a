"""DistributedDataParallel on gloo for a few steps, as a torchrun script: every rank prints the same loss."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())  # DDP gives all ranks the weights of rank 0
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    loss = (model(torch.ones(8, 4)) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.6f} local {os.environ['LOCAL_RANK']} of {dist.get_world_size()}")
dist.destroy_process_group()
