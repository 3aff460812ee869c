"""Trains small models, saves them, loads them with transformers and compares the loss; then continues training from the
file. Models saved by transformers pass through the trainer with identical bits.

save_model_test.py TRAIN_GPT: the comparison needs torch and transformers in the Python that runs it; without them it is
skipped with a line.
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
COUNT = (len(TEXT) - 1) // LENGTH  # samples


def train(program, folder, model, *options):
    """Trains and returns the records of the steps."""
    log = folder / "log.json"
    subprocess.run([program, "--model", str(model), "--data", str(folder / "text.txt"), "--log-json", str(log), *CONFIG,
                    *map(str, options)], check=True, stdout=subprocess.DEVNULL)
    return [json.loads(line) for line in log.read_text().splitlines()][:-1]


def loss_of(program, folder, model, weights):
    """Returns the loss of one step over the whole text from these weights, the loss of the saved model."""
    (record,) = train(program, folder, model, "--init", weights, "--steps", 1, "--set",
                      f"train_micro_batch_size_per_gpu={COUNT}")
    return record


def transformers_loss(folder):
    """Returns the loss of the saved model, by transformers, over all samples of the text."""
    import torch
    from transformers import AutoModelForCausalLM

    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    model = model.float().eval()
    samples = torch.tensor([list(TEXT[i * LENGTH:(i + 1) * LENGTH + 1]) for i in range(COUNT)])
    with torch.no_grad():
        logits = model(samples[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), samples[:, 1:].reshape(-1))
    return loss.item()


def compare(ours, folder):
    expected = transformers_loss(folder)
    relative = abs(ours["loss"] / expected - 1)
    print(f"{folder.name}: loss {ours['loss']:.7f}, transformers {expected:.7f}, relative difference {relative:.1e}")
    assert relative < 1e-5


def generated(program, folder, *options):
    """Returns the bytes that the saved model adds to the start of the text, greedily unless the options say otherwise."""
    out = subprocess.run([program, "--model", str(folder / "config.json"), "--init", str(folder), "--generate", "30",
                          "--prompt", TEXT[:20].decode(), *options], check=True, capture_output=True).stdout
    text = out.split(b"for 50 tokens\n\n", 1)[1].rsplit(b"\n\n30 tokens in ", 1)[0]
    assert text.startswith(TEXT[:20]) and len(text) == 50, text
    return text[20:]


def compare_generation(program, folder):
    """Greedy generation, at any stage and from a file, against transformers; and drawn tokens against each other."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder).float().eval()
    model.generation_config.eos_token_id = None
    expected = bytes(model.generate(torch.tensor([list(TEXT[:20])]), max_new_tokens=30, do_sample=False, pad_token_id=0)[0, 20:])
    from_file = ["--set", "zero_optimization.offload_param.device=nvme", "--set", f"zero_optimization.offload_param.nvme_path={folder}",
                 "--set", "zero_optimization.offload_param.max_in_cpu=0"]
    for options in ([], ["--stage", "3"], ["--stage", "3", *from_file]):
        own = generated(program, folder, *options)
        assert own == expected, (folder.name, options, own, expected)
    drawn = ["--temperature", "2", "--seed", "7"]
    assert generated(program, folder, *drawn) == generated(program, folder, *drawn) != expected
    assert generated(program, folder, *drawn, "--top-k", "1") == expected


def check_preset(program, folder, preset, expected):
    """Trains, saves, and continues from the saved model; returns its folder, and the loss there."""
    model = folder / preset
    records = train(program, folder, preset, "--steps", 30, "--save-model", model)
    assert [r["step"] for r in records] == list(range(1, 31))
    assert records[-1]["loss"] < records[0]["loss"]
    config = json.loads((model / "config.json").read_text())
    assert expected.items() <= config.items(), config
    # Reading and writing changes nothing.
    train(program, folder, model / "config.json", "--init", model, "--steps", 0, "--save-model", folder / "again")
    for name in ("config.json", "model.safetensors"):
        assert (folder / "again" / name).read_bytes() == (model / name).read_bytes(), name
    return model, loss_of(program, folder, preset, model / "model.safetensors")


def check_bare_names(program, folder, model, record):
    """The published gpt2 files name their tensors without "transformer."."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(model / "model.safetensors")
    bare = {name.removeprefix("transformer."): value for name, value in tensors.items()}
    save_file(bare, folder / "bare.safetensors", metadata={"format": "pt"})
    assert loss_of(program, folder, "tiny", folder / "bare.safetensors")["loss_bits"] == record["loss_bits"]


def models_of_transformers():
    import transformers

    sizes = {"vocab_size": 256, "hidden_size": 48, "intermediate_size": 100, "num_hidden_layers": 3,
             "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 64}
    llama3 = {"rope_type": "llama3", "rope_theta": 5000.0, "factor": 4.0, "low_freq_factor": 1.0,
              "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
    yarn = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
    llama, qwen, olmo = transformers.LlamaConfig, transformers.Qwen2Config, transformers.Olmo2Config
    return {
        "llama3 with a classifier": transformers.LlamaForCausalLM(llama(**sizes, rope_parameters=llama3)),
        "all biases, tied": transformers.LlamaForCausalLM(llama(
            **sizes, attention_bias=True, mlp_bias=True, head_dim=10, tie_word_embeddings=True)),
        "qwen2 with yarn": transformers.Qwen2ForCausalLM(qwen(**sizes, rope_parameters=yarn, tie_word_embeddings=True)),
        "olmo2": transformers.Olmo2ForCausalLM(olmo(**sizes, attention_bias=True, pad_token_id=None))}


def check_round_trip(program, folder, name, model):
    import torch
    from safetensors.torch import load_file

    with torch.no_grad():
        for value in model.parameters():
            value.add_(0.05 * torch.randn(value.shape))
    source, result = folder / name, folder / (name + " again")
    model.save_pretrained(source)
    train(program, folder, source / "config.json", "--init", source, "--steps", 0, "--save-model", result)
    before, after = load_file(source / "model.safetensors"), load_file(result / "model.safetensors")
    assert before.keys() == after.keys(), before.keys() ^ after.keys()
    for key, value in before.items():
        assert torch.equal(value.view(torch.int32), after[key].view(torch.int32)), key
    record = loss_of(program, folder, result / "config.json", source)
    compare(record, source)
    compare(record, result)
    compare_generation(program, source)


def check(program, folder):
    (folder / "text.txt").write_bytes(TEXT)
    gpt2, of_gpt2 = check_preset(program, folder, "tiny", {"n_layer": 2, "vocab_size": 256, "n_positions": 256})
    llama, of_llama = check_preset(program, folder, "llama-tiny", {
        "model_type": "llama", "num_hidden_layers": 2, "vocab_size": 256, "max_position_embeddings": 256})
    try:
        import torch
        import transformers  # noqa: F401
    except ImportError as missing:
        print(f"SKIPPED comparison with transformers: {missing}")
        return
    compare(of_gpt2, gpt2)
    compare(of_llama, llama)
    compare_generation(program, gpt2)
    check_bare_names(program, folder, gpt2, of_gpt2)
    torch.manual_seed(5)
    for name, model in models_of_transformers().items():
        check_round_trip(program, folder, name, model)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        check(sys.argv[1], pathlib.Path(temporary))
