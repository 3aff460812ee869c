"""Writes the DeepSpeed checkpoints that deepspeed_checkpoint_test reads into tests/data/deepspeed/.

Needs torch, transformers, numpy and deepspeed 0.19.8:

    DS_ACCELERATOR=cpu python3 tests/deepspeed/make_checkpoints.py tests/data/deepspeed [KIND ...]

For each kind two CPU ranks train a small GPT-2 for 5 steps, save, and train for 10 more. Stored: the checkpoints (that
of stage 2 also as a universal one), the model's config, the four samples of each step, the losses of the 10 steps, and
digests of all saved values, as DeepSpeed itself returns them. The kinds of ODD use the model in odd_model.py, on more
ranks, with the client state of client_state(). If kinds are named, only those are written.
"""

import argparse
import collections
import datetime
import enum

import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys

import numpy

RANKS, SAVED, MORE, MICRO, SEQUENCE, VOCABULARY = 2, 5, 10, 2, 12, 37
# Changes of the config by the name of the stored checkpoint; "frozen": parameters that are not trained.
SGD = {"type": "SGD", "params": {"lr": 3e-2, "momentum": 0.9, "weight_decay": 0.1}}
BF16 = {"bf16": {"enabled": True}}
KINDS = {
    "stage1": (1, {}), "stage2": (2, {}), "stage3": (3, {}),
    "sgd": (1, {"optimizer": SGD, "zero_allow_untested_optimizer": True}),
    "bf16-stage1": (1, {**BF16, "data_types": {"grad_accum_dtype": "fp32"}}),
    "bf16-stage2": (2, {**BF16, "frozen": ["transformer.wpe.weight", "transformer.h.1.ln_2.bias"]}),
    "frozen-stage1": (1, {"frozen": ["transformer.wpe.weight", "transformer.h.0.mlp.c_fc.weight"]}),
    "bf16-stage3": (3, {**BF16, "frozen": ["transformer.wte.weight", "transformer.h.0.attn.c_attn.bias"]})}
# ranks, stage, changes of the config; "frozen" as above, and left out of the checkpoint.
ODD = {
    "odd-stage1": (3, 1, {}), "odd-stage2": (12, 2, {}), "odd-stage3": (3, 3, {}), "odd-bf16-stage3": (3, 3, BF16),
    "lora-stage1": (2, 1, {"frozen": ["base.weight"]}), "lora-stage2": (2, 2, {"frozen": ["base.weight"]}),
    "lora-stage3": (2, 3, {"frozen": ["base.weight"]})}
MODEL = {"model_type": "gpt2", "vocab_size": VOCABULARY, "n_positions": SEQUENCE, "n_embd": 12, "n_layer": 2,
         "n_head": 3, "activation_function": "gelu_new"}


def config(stage, changes=None):
    changes = {key: value for key, value in (changes or {}).items() if key != "frozen"}
    return {
        "train_batch_size": RANKS * MICRO, "train_micro_batch_size_per_gpu": MICRO, "gradient_clipping": 1.0,
        "zero_optimization": {"stage": stage},
        "optimizer": {"type": "AdamW", "params": {"lr": 3e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1,
                                                  "torch_adam": True}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 3e-3, "warmup_num_steps": 8,
                                                     "warmup_type": "linear"}}, **changes}


def samples():
    """Returns samples cut like train_gpt's: each begins at the end of the one before it."""
    tokens = numpy.random.RandomState(5).randint(0, VOCABULARY, RANKS * MICRO * SEQUENCE + 1).astype(numpy.uint16)
    cut = [tokens[i * SEQUENCE:(i + 1) * SEQUENCE + 1] for i in range(RANKS * MICRO)]
    return tokens, numpy.stack(cut).astype(numpy.int64)


def make_model():
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    model = GPT2LMHeadModel(GPT2Config(**MODEL, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, bos_token_id=0,
                                       eos_token_id=0, attn_implementation="eager")).float()
    generator = torch.Generator().manual_seed(2025)
    with torch.no_grad():
        for name, value in model.named_parameters():
            noise = torch.randn(value.shape, generator=generator)
            value.copy_(1 + 0.1 * noise if ".ln_" in name and name.endswith("weight") else 0.1 * noise)
    return model


def sha256(tensor):
    """Hashes the values in fp32, or in their own type if they are frozen."""
    import torch
    return hashlib.sha256(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()).hexdigest()


def digests(engine, states):
    """Returns digests by name; all ranks must call it."""
    from deepspeed import zero
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
    if hasattr(engine.optimizer, "_hp_optimizer_states_linked"):
        # Linked again, because stages 1 and 2 link parameters to states only once, possibly before there are any.
        engine.optimizer._hp_optimizer_states_linked = False
        engine.optimizer._lazy_init_hp_params_optimizer_state()
    found = {}
    for name, param in engine.module.named_parameters():
        if not param.requires_grad:
            with zero.GatheredParameters([param]):
                found[name] = sha256(param)
            continue
        found[name] = sha256(safe_get_full_fp32_param(param).float())
        for state in states:
            found[f"{name}:{state}"] = sha256(safe_get_full_optimizer_state(param, state).float())
    return found


def train(kind, folder):
    """Trains as one rank."""
    stage, changes = KINDS[kind]
    import deepspeed
    import torch
    import torch.distributed
    torch.set_num_threads(1)
    deepspeed.init_distributed(dist_backend="gloo")
    rank = torch.distributed.get_rank()
    model = make_model()
    for name in changes.get("frozen", ()):
        model.get_parameter(name).requires_grad_(False)
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p for p in trained if p.dim() > 1]},
              {"params": [p for p in trained if p.dim() == 1], "weight_decay": 0.0}]
    engine, *_ = deepspeed.initialize(model=model, model_parameters=groups, config=config(stage, changes))
    states = ["momentum_buffer"] if "optimizer" in changes else ["exp_avg", "exp_avg_sq"]
    batch = torch.from_numpy(samples()[1][rank * MICRO:(rank + 1) * MICRO])
    losses = []
    for step in range(SAVED + MORE):
        if step == SAVED:
            engine.save_checkpoint(folder, tag=f"global_step{SAVED}")
            saved = digests(engine, states)
        logits = engine(batch[:, :-1]).logits.float()
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), batch[:, 1:].reshape(-1))
        engine.backward(loss)
        engine.step()
        mean = loss.detach().clone()
        torch.distributed.all_reduce(mean)
        losses.append(mean.item() / RANKS)
    if rank == 0:
        store(folder, losses, saved)


class Color(enum.Enum):
    RED = "red"


def client_state():
    """Returns objects that trainers store, from ones that any reader can read to ones that none can."""
    return {"epoch": 3, "best": 0.25, "name": "run", "done": False, "nothing": None,
            "nested": {"list": [1, 2.5, "three"], "deep": {"on": True}},
            "args": argparse.Namespace(lr=1e-3, layers=[1, 2]), "score": numpy.float64(1.5), "count": numpy.int32(7),
            "array": numpy.arange(3), "numpy_random": numpy.random.RandomState(5).get_state(),
            "python_random": random.Random(5).getstate(), "folder": pathlib.PurePosixPath("/runs/a"),
            "color": Color.RED, "window": collections.deque([1, 2], maxlen=4), "when": datetime.datetime(2026, 1, 2),
            "counts": collections.defaultdict(int, {"a": 1}), "part": slice(1, 2), "mixed": [1, Color.RED, 3]}


def train_odd(kind, folder):
    """Trains as one rank."""
    ranks, stage, changes = ODD[kind]
    import deepspeed
    import odd_model
    import torch
    import torch.distributed
    torch.set_num_threads(1)
    deepspeed.init_distributed(dist_backend="gloo")
    rank = torch.distributed.get_rank()
    frozen = changes.get("frozen", ())
    model = odd_model.make(frozen)
    changes = {key: value for key, value in changes.items() if key != "frozen"}
    engine, *_ = deepspeed.initialize(model=model, model_parameters=odd_model.groups(model),
                                      config=odd_model.config(ranks, stage, **changes))
    tokens = odd_model.batch(rank, ranks)
    losses = []
    for step in range(SAVED + MORE):
        if step == SAVED:
            engine.save_checkpoint(folder, tag=f"global_step{SAVED}", client_state=client_state(),
                                   exclude_frozen_parameters=bool(frozen))
            saved = digests(engine, ["exp_avg", "exp_avg_sq"])
            saved = {name: value for name, value in saved.items() if name not in frozen}
            saved.update((name, sha256(buffer)) for name, buffer in model.named_buffers() if name != "mask")
        loss = odd_model.loss_of(engine, tokens)
        engine.backward(loss)
        engine.step()
        mean = loss.detach().clone()
        torch.distributed.all_reduce(mean)
        losses.append(mean.item() / ranks)
    if rank == 0:
        store(folder, losses, saved)


def store(folder, losses, saved):
    pathlib.Path(folder, "losses.json").write_text(json.dumps(losses[SAVED:]) + "\n")
    pathlib.Path(folder, "digests.json").write_text(json.dumps(saved, indent=1) + "\n")


def start(kind, folder):
    count = ODD[kind][0] if kind in ODD else RANKS
    ranks = [subprocess.Popen([sys.executable, __file__, "--rank", kind, folder], env={
        **os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29541", "DS_ACCELERATOR": "cpu"}) for rank in range(count)]
    if any([process.wait() for process in ranks]):
        sys.exit(f"{kind} failed")


def write(kind, folder):
    shutil.rmtree(folder / kind, ignore_errors=True)
    start(kind, str(folder / kind))
    # Removed, since the scripts that DeepSpeed puts next to its checkpoints are not our code.
    for script in (folder / kind).glob("zero_to_*.py"):
        script.unlink()


def main(folder):
    shutil.rmtree(folder, ignore_errors=True)
    for kind in (*KINDS, *ODD):
        write(kind, folder)
    universal = folder / "universal"
    subprocess.run([sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--input_folder",
                    str(folder / "stage2" / f"global_step{SAVED}"), "--output_folder",
                    str(universal / f"global_step{SAVED}"), "--inject_missing_state"], check=True,
                   env={**os.environ, "DS_ACCELERATOR": "cpu"})
    for name in ("losses.json", "digests.json"):
        shutil.copy(folder / "stage2" / name, universal)
    (universal / "latest").write_text(f"global_step{SAVED}")
    samples()[0].tofile(folder / "tokens.bin")
    (folder / "config.json").write_text(json.dumps(MODEL) + "\n")
    ours = config(1)
    ours["optimizer"]["params"].pop("torch_adam")
    (folder / "ds_config.json").write_text(json.dumps(ours, indent=2) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        (train_odd if sys.argv[2] in ODD else train)(sys.argv[2], sys.argv[3])
    elif sys.argv[2:]:
        for asked in sys.argv[2:]:
            write(asked, pathlib.Path(sys.argv[1]).absolute())
    else:
        main(pathlib.Path(sys.argv[1]).absolute())
