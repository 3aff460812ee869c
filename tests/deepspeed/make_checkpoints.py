"""Writes the DeepSpeed checkpoints that deepspeed_checkpoint_test reads into tests/data/deepspeed/.

Needs torch, transformers, numpy and deepspeed 0.19.8:

    DS_ACCELERATOR=cpu python3 tests/deepspeed/make_checkpoints.py tests/data/deepspeed

For each stage two CPU ranks train a small GPT-2 in fp32 for 5 steps, save, and train for 10 more. Stored: the
checkpoints (that of stage 2 also as a universal one), the model's config, the four samples that each step sees, and
the losses of the 10 steps.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy

RANKS, SAVED, MORE, MICRO, SEQUENCE, VOCABULARY = 2, 5, 10, 2, 12, 37
MODEL = {"model_type": "gpt2", "vocab_size": VOCABULARY, "n_positions": SEQUENCE, "n_embd": 12, "n_layer": 2,
         "n_head": 3, "activation_function": "gelu_new"}


def config(stage):
    return {
        "train_batch_size": RANKS * MICRO, "train_micro_batch_size_per_gpu": MICRO, "gradient_clipping": 1.0,
        "zero_optimization": {"stage": stage},
        "optimizer": {"type": "AdamW", "params": {"lr": 3e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1,
                                                  "torch_adam": True}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 3e-3, "warmup_num_steps": 8,
                                                     "warmup_type": "linear"}}}


def samples():
    """As train_gpt cuts the token file: each begins where the one before it ends."""
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


def train(stage, folder):
    """One rank."""
    import deepspeed
    import torch
    import torch.distributed
    torch.set_num_threads(1)
    deepspeed.init_distributed(dist_backend="gloo")
    rank = torch.distributed.get_rank()
    model = make_model()
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1]},
              {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}]
    engine, *_ = deepspeed.initialize(model=model, model_parameters=groups, config=config(stage))
    batch = torch.from_numpy(samples()[1][rank * MICRO:(rank + 1) * MICRO])
    losses = []
    for step in range(SAVED + MORE):
        if step == SAVED:
            engine.save_checkpoint(folder, tag=f"global_step{SAVED}")
        logits = engine(batch[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), batch[:, 1:].reshape(-1))
        engine.backward(loss)
        engine.step()
        mean = loss.detach().clone()
        torch.distributed.all_reduce(mean)
        losses.append(mean.item() / RANKS)
    if rank == 0:
        pathlib.Path(folder, "losses.json").write_text(json.dumps(losses[SAVED:]) + "\n")


def start(stage, folder):
    ranks = [subprocess.Popen([sys.executable, __file__, "--rank", str(stage), folder], env={
        **os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29541", "DS_ACCELERATOR": "cpu"}) for rank in range(RANKS)]
    if any([process.wait() for process in ranks]):
        sys.exit(f"stage {stage} failed")


def main(folder):
    shutil.rmtree(folder, ignore_errors=True)
    for stage in (1, 2, 3):
        start(stage, str(folder / f"stage{stage}"))
        # The script that DeepSpeed puts beside its checkpoints is none of ours.
        (folder / f"stage{stage}" / "zero_to_torch.py").unlink(missing_ok=True)
    universal = folder / "universal"
    subprocess.run([sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--input_folder",
                    str(folder / "stage2" / f"global_step{SAVED}"), "--output_folder",
                    str(universal / f"global_step{SAVED}"), "--inject_missing_state"], check=True,
                   env={**os.environ, "DS_ACCELERATOR": "cpu"})
    shutil.copy(folder / "stage2" / "losses.json", universal)
    (universal / "latest").write_text(f"global_step{SAVED}")
    samples()[0].tofile(folder / "tokens.bin")
    (folder / "config.json").write_text(json.dumps(MODEL) + "\n")
    ours = config(1)
    ours["optimizer"]["params"].pop("torch_adam")
    (folder / "ds_config.json").write_text(json.dumps(ours, indent=2) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        train(int(sys.argv[2]), sys.argv[3])
    else:
        main(pathlib.Path(sys.argv[1]).absolute())
