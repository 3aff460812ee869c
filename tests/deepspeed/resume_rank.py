"""One rank of resumed_test.py: `resume_rank.py CHECKPOINT DATA STAGE`. Prints the losses of four more steps."""

import hashlib
import json
import pathlib
import sys

import odd_model
import torch
import zerocore

checkpoint, data, stage = sys.argv[1:4]
torch.set_num_threads(1)
frozen = ["base.weight"] if "lora" in data else []
ranks = zerocore.ranks()
model = odd_model.make(frozen)
config = odd_model.config(ranks.size, int(stage))
del config["optimizer"]["params"]["torch_adam"]
engine, *_ = zerocore.initialize(model=model, model_parameters=odd_model.groups(model), config=config)
_, client_state = engine.load_checkpoint(checkpoint)
assert engine.global_steps == 5
assert client_state["epoch"] == 3 and client_state["nested"]["deep"] == {"on": True}, client_state
expected = json.loads(pathlib.Path(data, "digests.json").read_text())


def compare(name, tensor):
    found = hashlib.sha256(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
    assert found == expected[name], name


for name, parameter in model.named_parameters():
    if name in frozen:
        continue
    compare(name, engine.read(parameter, "master"))
    for state in ("exp_avg", "exp_avg_sq"):
        compare(f"{name}:{state}", engine.read(parameter, state))
compare("mean", model.mean)
compare("batches", model.batches)

tokens = odd_model.batch(ranks.rank, ranks.size)
losses = []
for _ in range(4):
    loss = odd_model.loss_of(engine, tokens)
    engine.backward(loss)
    engine.step()
    losses.append(engine.last_step.loss)
if ranks.rank == 0:
    print(json.dumps(losses), flush=True)
