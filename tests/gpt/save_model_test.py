"""Trains a small model, saves it, loads it with transformers and compares the loss; then trains on from the file.

save_model_test.py TRAIN_GPT: the comparison needs torch and transformers in the Python that runs it; without
them the comparison is skipped with a line.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

TEXT = ("Sharded training must not change a bit of the result. " * 40).encode()
LENGTH = 64
CONFIG = ["--set", "train_micro_batch_size_per_gpu=2", "--set", "zero_optimization.stage=3", "--sequence-length",
          str(LENGTH)]


def train(program, folder, log, *options):
    subprocess.run([program, "--model", "tiny", "--data", str(folder / "text.txt"), "--log-json", str(log), *CONFIG,
                    *options], check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return lines[:-1], lines[-1]["summary"]


def mean_loss(folder, text):
    """The loss of the saved model, by transformers, over all samples of the text."""
    import torch
    from transformers import GPT2LMHeadModel

    model, info = GPT2LMHeadModel.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    model = model.float().eval()
    count = (len(text) - 1) // LENGTH
    samples = torch.tensor([list(text[i * LENGTH:(i + 1) * LENGTH + 1]) for i in range(count)])
    with torch.no_grad():
        logits = model(samples[:, :-1]).logits
        return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), samples[:, 1:].reshape(-1)).item()


def check(program, folder):
    (folder / "text.txt").write_bytes(TEXT)
    model = folder / "model"
    records, summary = train(program, folder, folder / "log.json", "--steps", "30", "--save-model", str(model))
    assert [r["step"] for r in records] == list(range(1, 31))
    assert records[-1]["loss"] < records[0]["loss"]
    config = json.loads((model / "config.json").read_text())
    assert (config["n_layer"], config["vocab_size"], config["n_positions"]) == (2, 256, 256)

    # One step over the whole text from the saved weights: its loss is that of the saved model.
    count = (len(TEXT) - 1) // LENGTH
    whole = ["--init", str(model / "model.safetensors"), "--steps", "1", "--set", f"train_micro_batch_size_per_gpu={count}"]
    again, _ = train(program, folder, folder / "again.json", *whole)
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as missing:
        print(f"SKIPPED comparison with transformers: {missing}")
        return
    expected = mean_loss(model, TEXT)
    relative = abs(again[0]["loss"] / expected - 1)
    print(f"loss {again[0]['loss']:.7f}, transformers {expected:.7f}, relative difference {relative:.1e}")
    assert relative < 1e-5

    # As the published gpt2 files name their tensors: without "transformer.".
    from safetensors.torch import load_file, save_file
    tensors = load_file(model / "model.safetensors")
    bare = {name.removeprefix("transformer."): value for name, value in tensors.items()}
    save_file(bare, folder / "bare.safetensors", metadata={"format": "pt"})
    whole[1] = str(folder / "bare.safetensors")
    bare_run, _ = train(program, folder, folder / "bare.json", *whole)
    assert bare_run[0]["loss_bits"] == again[0]["loss_bits"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        check(sys.argv[1], pathlib.Path(temporary))
