"""Measures steps of train_gpt alone on one GPU, on its own token file; needs no PyTorch.

  gpu_steps.py TRAIN_GPT [--model gpt2|gpt2-xl|llama-1.2b] [--vocabulary V] [--batch B] [--steps 15]
  gpu_steps.py TRAIN_GPT --model llama-1.2b --separate-products    of queries, keys, values, gate and up
  gpu_steps.py TRAIN_GPT --attention-workspace 192MiB, --any-order-attention    of cuDNN
  gpu_steps.py TRAIN_GPT --offload GPU_BENCH [--ways WAY ...] [--model ...]    also with state in host memory

--offload: copies of pinned memory while nothing else runs (GPU_BENCH --copies), steps without offload, with optimizer
states in host memory that the CPU updates, the GPU, or both, and with parameters there too. A copy's rate is compared
with that of the raw copies. The exposed time is what offload adds to a step: of its copies, and of the host's update.
"""

import argparse
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import gpu_run

PINNED = {"device": "cpu", "pin_memory": True}
OFFLOADED = {  # sections of the config
    "none": {"zero_optimization": {"stage": 2}},
    "optimizer": {"zero_optimization": {"stage": 2, "offload_optimizer": PINNED}},
    "device_step": {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
                    "zero_core": {"offload_step": "device"}},
    "both_step": {"zero_optimization": {"stage": 2, "offload_optimizer": PINNED},
                  "zero_core": {"offload_step": "both", "offload_host_rate": 120e9, "offload_bus_rate": 55e9}},
    "parameters": {"zero_optimization": {"stage": 3, "offload_optimizer": PINNED,
                                         "offload_param": {**PINNED, "max_in_cpu": 0}}},
}


def figure(name, value):
    print(f"figure {name} {value}", flush=True)


def steps_alone(args, folder, tokens_per_step):
    run = gpu_run.Run(args.program, folder, gpu_run.settings(args.batch), args.steps, args.device,
                      any_attention=args.any_attention,
                      more=[*(["--separate-products"] if args.separate_products else []),
                            *(["--any-order-attention"] if args.any_order_attention else []),
                            *(["--attention-workspace", args.attention_workspace] if args.attention_workspace else [])])
    times = run.step_ms(args.warmup)
    middle = statistics.median(times)
    figure("attention", run.attention.replace(" ", "_"))
    figure("step_ms", round(middle, 2))
    figure("step_ms_fastest", round(times[0], 2))
    figure("step_ms_slowest", round(times[-1], 2))
    figure("tokens_per_s", round(1e3 * tokens_per_step / middle))
    figure("memory_gib", round(sum(use["peak"] for use in run.rank["memory"].values()) / 2**30, 2))
    figure("loss_first", round(run.records[0]["loss"], 4))
    figure("loss_last", round(run.records[-1]["loss"], 4))


def raw_rates(program):
    """Returns bytes per second of copies while nothing else uses the bus, by the direction's name in the summary."""
    run = subprocess.run([program, "--copies"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(run.stdout, flush=True)
    if run.returncode != 0:
        sys.exit(f"gpu_bench --copies: code {run.returncode}")
    return {"to_host": 1e9 * float(re.search(r"^figure to_host_gb_s (\S+)", run.stdout, re.MULTILINE)[1]),
            "to_device": 1e9 * float(re.search(r"^figure from_host_gb_s (\S+)", run.stdout, re.MULTILINE)[1])}


def offload(args, folder):
    raw, plain = raw_rates(args.offload), None
    for name in ("none", *args.ways):
        sections = OFFLOADED[name]
        run = gpu_run.Run(args.program, folder, gpu_run.settings(args.batch, **sections), args.steps, args.device,
                          any_attention=args.any_attention)
        middle = statistics.median(run.step_ms(args.warmup))
        figure(f"{name}_step_ms", round(middle, 2))
        if plain is None:
            plain = middle
            continue
        copies = {direction: use for direction, use in run.rank["copies"].items() if use["seconds"] > 0}
        for direction, use in copies.items():
            figure(f"{name}_{direction}_gb_s", round(use["bytes"] / use["seconds"] * 1e-9, 2))
            figure(f"{name}_{direction}_of_raw", round(use["bytes"] / use["seconds"] / raw[direction], 3))
        copied_ms = 1e3 * sum(use["seconds"] for use in copies.values()) / args.steps
        figure(f"{name}_copies_ms", round(copied_ms, 2))
        figure(f"{name}_exposed_ms", round(middle - plain, 2))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    gpu_run.add_options(parser)
    parser.add_argument("--vocabulary", type=int)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--separate-products", action="store_true")
    parser.add_argument("--any-order-attention", action="store_true")
    parser.add_argument("--attention-workspace", metavar="SIZE")
    parser.add_argument("--offload", metavar="GPU_BENCH")
    parser.add_argument("--ways", nargs="+", choices=list(OFFLOADED)[1:], default=list(OFFLOADED)[1:])
    args = parser.parse_args()
    config = gpu_run.model_config(args.model, args.vocabulary)
    args.batch = args.batch or gpu_run.BATCH.get(args.model, 4)
    tokens = gpu_run.context(config)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        gpu_run.write_inputs(folder, config,
                             gpu_run.draw_tokens(config["vocab_size"], args.batch * tokens * min(args.steps, 8) + 1))
        if args.offload:
            offload(args, folder)
        else:
            steps_alone(args, folder, args.batch * tokens)


if __name__ == "__main__":
    main()
