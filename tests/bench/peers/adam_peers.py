"""AdamW of PyTorch and DeepSpeed over one array, in turns with ours (started by ../adamw_peers.py)."""

import argparse

import torch

from turns_peer import serve


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("peer", choices=("torch", "deepspeed"))
    parser.add_argument("threads", type=int)
    parser.add_argument("elements", type=int)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    parameter = torch.nn.Parameter(torch.zeros(args.elements))
    parameter.grad = torch.randn(args.elements, generator=torch.Generator().manual_seed(1)) * 1e-3
    options = {"lr": 1e-3, "weight_decay": 0.01}
    if args.peer == "torch":
        optimizer = torch.optim.AdamW([parameter], fused=True, **options)
    else:
        from deepspeed.ops.adam import DeepSpeedCPUAdam
        optimizer = DeepSpeedCPUAdam([parameter], adamw_mode=True, **options)

    def step():
        optimizer.step()
        return parameter[0].item()

    serve(args.directory, 0, step)


if __name__ == "__main__":
    main()
