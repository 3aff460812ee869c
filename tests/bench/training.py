"""Compares a GPT-2 trained by ours and by another program in turns: step times, their paired ratio, and resident
memory.

  training.py BENCH_GPT_STEP|PACKAGE [--python PYTHON] [--bf16] [--json FILE] OURS:THEM...

A pair is a ZeRO stage of ours and its opponent: another stage of ours (0:1 is stage 1 over stage 0), or a peer of
peers/gpt_peers.py: ddp, fsdp2, ds0 to ds3, alone. 2+nvme is stage 2 with its state in a file of --nvme DIRECTORY. No
rank is bound to a core, and each has one thread. PYTHON is the interpreter of an environment with the peer. If a
PACKAGE is given, the folder that holds `zerocore`, ours is the Python package, and all train the GPT-2 of transformers;
2+torchrun is then stage 2 started by torchrun.
"""

import argparse
import json
import pathlib
import socket
import sys
import tempfile

from turns import DIRECTORY, Contestant, play, report, summary

HERE = pathlib.Path(__file__).parent
SIZES = ("layers", "heads", "channels", "vocabulary", "context")
MODELS = {"gpt2": (12, 12, 768, 50257, 1024), "0.2M": (2, 2, 64, 1024, 256), "0.8M": (14, 2, 64, 1024, 256)}
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def config_file(folder, model):
    layers, heads, channels, vocabulary, context = MODELS[model]
    file = pathlib.Path(folder, "config.json")
    file.write_text(json.dumps({"model_type": "gpt2", "n_layer": layers, "n_head": heads, "n_embd": channels,
                                "vocab_size": vocabulary, "n_positions": context}))
    return file


def of_torch(args, name):
    sizes = [w for option, size in zip(SIZES, MODELS[args.model]) for w in (f"--{option}", size)]
    return [args.python, HERE / "peers/gpt_peers.py", DIRECTORY, name, *sizes, "--tokens", args.tokens,
            "--batch", args.batch, "--device", args.device, *(["--bf16"] if args.bf16 else []),
            *(["--hugging-face"] if args.package else [])]


def ours(args, name):
    stage, _, place = name.partition("+")
    if args.package:
        python, *script = of_torch(args, f"zero{stage}")
        launcher = [args.mpirun, "-n", args.ranks, "--bind-to", "none", python]
        if place == "torchrun":
            launcher = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", args.ranks]
        return Contestant(f"ours, stage {name}", [*launcher, *script], args.ranks,
                          {**MPI, "PYTHONPATH": args.program, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": args.device})
    settings = ["train_micro_batch_size_per_gpu=1", f"bf16.enabled={'true' if args.bf16 else 'false'}"]
    if place == "nvme":
        settings += ["zero_optimization.offload_optimizer.device=nvme",
                     f"zero_optimization.offload_optimizer.nvme_path={args.nvme}"]
    command = [args.mpirun, "-n", args.ranks, "--bind-to", "none", args.program, DIRECTORY, "--model", args.config,
               "--sequence-length", args.tokens, "--threads", "1", "--stage", stage]
    return Contestant(f"ours, stage {name}", command + [w for s in settings for w in ("--set", s)], args.ranks, MPI)


def peer(args, name):
    if name[0].isdigit():
        return ours(args, name)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return Contestant(name, of_torch(args, name), args.ranks,
                      {"WORLD_SIZE": str(args.ranks), "LOCAL_WORLD_SIZE": str(args.ranks), "MASTER_ADDR": "127.0.0.1",
                       "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": args.device}, each=True)


def compete(args, stage, name):
    with ours(args, stage) as mine, peer(args, name) as other:
        result = summary(*play(mine, other, args.turns, args.warmup, args.steps))
        for key, milliseconds in (("ours_tokens_s", result["ours_ms"]), ("peer_tokens_s", result["peer_ms"])):
            result[key] = 1e3 * args.ranks * args.batch * args.tokens / milliseconds
        if args.memory:
            for key, contestant in (("ours_mib", mine), ("peer_mib", other)):
                result[key] = contestant.peak_resident_bytes() / 2**20
        report([f"{c.name}{' bf16' if args.bf16 else ''}" for c in (mine, other)], result, args.json)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("pairs", nargs="+")
    parser.add_argument("--model", choices=MODELS, default="gpt2")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--batch", type=int, default=1, help="samples of a rank, with a PACKAGE")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="with a PACKAGE")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--warmup", type=int, default=2, help="turns before those that count")
    parser.add_argument("--steps", type=int, default=1, help="of one turn")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--nvme", help="directory of the file, on a local disk")
    parser.add_argument("--memory", action="store_true", help="resident memory too, sampled in steps of its own")
    parser.add_argument("--json", help="append one object per pair to this file")
    args = parser.parse_args()
    args.package = pathlib.Path(args.program).is_dir()
    with tempfile.TemporaryDirectory() as folder:
        args.config = config_file(folder, args.model)
        for pair in args.pairs:
            compete(args, *pair.split(":"))


if __name__ == "__main__":
    main()
