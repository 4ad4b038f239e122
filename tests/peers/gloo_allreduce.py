#!/usr/bin/python3
"""Gloo's all-reduce over loopback TCP, through PyTorch, for
`syncline-bench collective`: prints "elements seconds" for each number of float32,
as collective_rank does.

  gloo_allreduce.py FOLDER RANK RANKS ELEMENTS...

Ranks find each other by a file in FOLDER. Exits with 77 where PyTorch is not
installed (Debian: python3-torch).
"""

import os
import sys
import time

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
try:
    import torch
    import torch.distributed as distributed
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

# The most all-reduces of one size; `syncline-bench collective --smoke` sets fewer.
TIMES_MAX = int(os.environ.get("SYNCLINE_ALLREDUCE_TIMES_MAX", "4000"))


def main(folder, rank, ranks, counts):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/gloo",
                                   rank=rank, world_size=ranks)
    for count in counts:
        index = torch.arange(count)
        values = ((index + rank * 7) % 1000).float()
        distributed.all_reduce(values)
        expected = sum(((index + r * 7) % 1000).float() for r in range(ranks))
        if not torch.equal(values, expected):
            sys.exit("a wrong sum")
        values.fill_(1e-30)
        seconds = []
        for _ in range(max(6, min(TIMES_MAX, (64 << 20) // (count + 1)))):
            start = time.perf_counter()
            distributed.all_reduce(values)
            seconds.append(time.perf_counter() - start)
        seconds.sort()
        if rank == 0:
            print(count, f"{seconds[len(seconds) // 2]:.9f}", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]),
         [int(count) for count in sys.argv[4:]])
