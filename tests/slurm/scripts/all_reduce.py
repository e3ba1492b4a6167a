"""Sum of the ranks over gloo, on every rank."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank())])
dist.all_reduce(total)
print("sum", total.item())
dist.destroy_process_group()
