"""FSDP's order with accelerate: accelerate_fsdp.py FOLDER. A model that is prepared before its optimizer is made trains as one
that is prepared with it, and is saved and loaded once."""

import sys

import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.state import AcceleratorState

STEPS_OF_RATE = 2


def made_together(accelerator, net, data):
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    return accelerator.prepare(net, optimizer, data, torch.optim.lr_scheduler.StepLR(optimizer, STEPS_OF_RATE, 0.5))


def made_later(accelerator, net, data):
    net = accelerator.prepare(net)
    optimizer = torch.optim.AdamW([each for each in net.parameters() if each.requires_grad], lr=0.01)
    return net, *accelerator.prepare(optimizer, data, torch.optim.lr_scheduler.StepLR(optimizer, STEPS_OF_RATE, 0.5))


def made_apart(accelerator, net, data):
    net = accelerator.prepare(net)
    optimizer = accelerator.prepare_optimizer(torch.optim.AdamW(net.parameters(), lr=0.01))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, STEPS_OF_RATE, 0.5)
    return net, optimizer, accelerator.prepare(data), accelerator.prepare(scheduler)


def step(accelerator, net, optimizer, scheduler, batch):
    loss = net(batch).square().mean()
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(net.parameters(), 0.1)
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    return loss.item()


def trained(make, folder):
    AcceleratorState._reset_state(True)
    accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=2))
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    data = torch.utils.data.DataLoader(torch.arange(64.).view(16, 4) / 64, batch_size=2)
    given = net, optimizer, data, scheduler = make(accelerator, net, data)
    losses = [step(accelerator, net, optimizer, scheduler, batch) for batch in data]
    assert [model is net for model in accelerator._models] == [True], accelerator._models
    assert isinstance(net, torch.nn.Module) and type(accelerator.unwrap_model(net)) is torch.nn.Sequential
    weights = accelerator.get_state_dict(net)
    accelerator.save_state(folder)
    losses.append(step(accelerator, net, optimizer, scheduler, torch.ones(2, 4)))
    accelerator.load_state(folder)
    losses.append(step(accelerator, net, optimizer, scheduler, torch.ones(2, 4)))
    assert losses[-2] == losses[-1], losses
    del given
    accelerator.free_memory()
    return losses, scheduler.get_last_lr(), {name: weight.tolist() for name, weight in (weights or {}).items()}  # rank 0 has them


def main(folder):
    together, *others = [trained(make, f"{folder}/{make.__name__}") for make in (made_together, made_later, made_apart)]
    assert together[0][0] > together[0][-3] > 0 and together[1][0] < 0.01, together
    for other in others:
        assert other == together, (other, together)
    print("Finished Training")


main(sys.argv[1])
