"""One rank: the bytes of engine.stream_changes() after each of 20 steps of AdamW at the rate of reinforcement learning, and those
of all weights, `share_of_changes.py gpt2|llama [RATE]`. Weights are bf16 with masters in fp32, and the loss is that of
a policy gradient, with random tokens and advantages."""

import sys

import torch
import transformers

import zerocore

KIND, RATE = sys.argv[1], float((sys.argv[2:] or ["1e-6"])[0])
STEPS, SAMPLES, TOKENS, WORDS = 20, 4, 96, 4096


def net():
    torch.manual_seed(0)
    if KIND == "gpt2":
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=WORDS, n_positions=128, n_embd=256, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=0, resid_pdrop=0,
            embd_pdrop=0, attn_pdrop=0))
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=WORDS, hidden_size=256, intermediate_size=688, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2))


def loss_of(engine, generator):
    tokens = torch.randint(0, WORDS, (SAMPLES, TOKENS), generator=generator)
    chances = engine(input_ids=tokens).logits[:, :-1].float().log_softmax(-1).gather(-1, tokens[:, 1:, None])
    rewards = torch.randn(SAMPLES, generator=generator)
    return -((rewards - rewards.mean()) / rewards.std() * chances.mean((1, 2))).mean()


def main():
    model, rank = net(), zerocore.ranks().rank
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0)
    engine = zerocore.initialize(model=model, optimizer=optimizer, config={
        "train_micro_batch_size_per_gpu": SAMPLES, "zero_optimization": {"stage": 3}, "bf16": {"enabled": True},
        "gradient_clipping": 1.0, "steps_per_print": 0, "zero_core": {"start_line": False}})[0]
    generator = torch.Generator().manual_seed(5 + rank)
    stream = engine.stream_changes(None, 64 << 20, ranks=0)
    elements = sum(values.numel() for *_, values in stream)
    table = []  # (elements, bytes) of each step
    for _ in range(STEPS):
        engine.backward(loss_of(engine, generator))
        engine.step()
        stream = engine.stream_changes(stream.head["digest"], 64 << 20, ranks=0)
        pieces = [(values.numel(), values.nbytes + numbers.nbytes) for _, _, numbers, values in stream]
        table.append(tuple(map(sum, zip(*pieces))))
    if rank == 0:
        print(f"{KIND}, {elements} weights, {2 * elements} bytes, rate {RATE}\nstep  unchanged %    bytes  % of all")
        means = tuple(sum(column) / STEPS for column in zip(*table))
        for name, (changed, size) in [*((str(step + 1), table[step]) for step in (0, 1, 4, 9, 19)), ("mean", means)]:
            print(f"{name:4}  {100 - 100 * changed / elements:11.2f} {size:9.0f} {50 * size / elements:8.2f}")


main()
