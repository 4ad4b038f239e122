#!/usr/bin/python3
"""An MLP trained by PyTorch's DistributedDataParallel on Gloo, for
`syncline-bench strategies`: prints the samples per second of all ranks together.

  ddp_mlp.py FOLDER RANK RANKS BATCH STEPS WIDTHS...

784 1024 10 is one hidden layer with ReLU. As the benchmark's jobs: float32, Adam,
softmax cross-entropy, one thread a rank, BATCH samples a rank and step, the data
in memory. Ranks find each other by a file in FOLDER. Exits with 77 where PyTorch
is not installed (Debian: python3-torch).
"""

import os
import sys
import time

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
try:
    import torch
    import torch.distributed as distributed
    from torch.nn.parallel import DistributedDataParallel
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)


def main(folder, rank, ranks, batch, steps, widths):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/ddp",
                                   rank=rank, world_size=ranks)
    layers = []
    for before, after in zip(widths, widths[1:]):
        layers += [torch.nn.Linear(before, after), torch.nn.ReLU()]
    model = DistributedDataParallel(torch.nn.Sequential(*layers[:-1]))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    loss_of = torch.nn.CrossEntropyLoss()
    images = torch.rand(batch * min(steps, 16), widths[0])
    labels = torch.randint(widths[-1], (images.shape[0],))
    warmup = 5
    for step in range(warmup + steps):
        if step == warmup:
            distributed.barrier()
            start = time.perf_counter()
        first = batch * step % images.shape[0]
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model(images[first:first + batch]),
                       labels[first:first + batch])
        loss.backward()
        optimizer.step()
    distributed.barrier()
    seconds = time.perf_counter() - start
    if not torch.isfinite(loss):
        sys.exit("the loss is not finite")
    if rank == 0:
        print(f"{ranks * batch * steps / seconds:.3f}", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], *[int(word) for word in sys.argv[2:6]],
         [int(width) for width in sys.argv[6:]])
