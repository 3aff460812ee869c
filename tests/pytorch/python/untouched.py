"""One rank or more: `untouched.py`. Trains a module in a plain loop, with other libraries imported, and prints what differs in
modules outside of zerocore and in their classes, before the import of zerocore and after the loop; then once more after
as_deepspeed.install(), the same loop, and uninstall()."""

import collections
import importlib.util
import signal
import sys

import torch
from torch import nn

torch.set_num_threads(1)
OTHERS = [name for name in ("transformers", "accelerate", "peft") if importlib.util.find_spec(name)]
for name in [*OTHERS, *(name for name in ("transformers.trainer", "accelerate.utils.deepspeed") if name.split(".")[0] in OTHERS)]:
    importlib.import_module(name)
PACKAGES = ("torch", *OTHERS)
# Caches that torch and Python fill themselves.
FILLED = {"__warningregistry__", "_cache", "_lru_cache"}


def watched():
    """Returns {name: module or class} of the packages, of sys and of signal."""
    modules = {name: module for name, module in list(sys.modules.items())
               if name in ("sys", "signal") or name.split(".")[0] in PACKAGES}
    classes = {f"{name}.{value.__qualname__}": value for name, module in modules.items()
               for value in list(vars(module).values()) if isinstance(value, type) and value.__module__ == name}
    return {**modules, **classes}


def contents(value):
    """Returns what a global container has in it, for hooks that are registered there."""
    return [id(item) for item in (value.values() if isinstance(value, dict) else value)] if type(value) in CONTAINERS else None


CONTAINERS = (dict, list, collections.OrderedDict)


def snapshot(owners):
    return {name: {key: (value, contents(value) if is_hooks(key) else None) for key, value in list(vars(owner).items())}
            for name, owner in owners.items()}


def is_hooks(key):
    return "hook" in key or key == "meta_path"


def differences(owners, before):
    found = []
    for name, owner in owners.items():
        for key, value in list(vars(owner).items()):
            was = before[name].get(key)
            if was is None:
                if not (isinstance(owner, type(sys)) and isinstance(value, type(sys))) and key not in FILLED:
                    found.append(f"{name}.{key} is new")
            elif was[0] is not value and not isinstance(value, (int, float, str, bytes, tuple)):
                found.append(f"{name}.{key} is another")
            elif was[1] is not None and was[1] != contents(value):
                found.append(f"{name}.{key} has other contents")
        found += [f"{name}.{key} is gone" for key in before[name] if key not in vars(owner)]
    return found


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)) for _ in range(2)])
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def train(optimizer, dtype, stage):
    import zerocore
    torch.manual_seed(1)
    net = Net()
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1.0, "zero_optimization": {"stage": stage},
              "steps_per_print": 1000, dtype: {"enabled": True}}
    client = optimizer(net.parameters(), lr=0.01)
    engine, *_ = zerocore.initialize(model=net, optimizer=client, config=config)
    inputs = torch.ones(2, 8, dtype=next(engine.module.parameters()).dtype)
    for _ in range(2):
        engine.backward(engine(inputs).float().pow(2).mean())
        engine.step()
    engine.eval()
    with torch.no_grad():
        engine(inputs)
    engine.destroy()


def after_uninstall(owners, before):
    """Modules that are made for DeepSpeed when it is found are loaded again, and stay."""
    import zerocore.as_deepspeed
    zerocore.as_deepspeed.install()
    import deepspeed
    assert deepspeed.__file__.endswith("shim/deepspeed/__init__.py"), deepspeed.__file__
    train(torch.optim.AdamW, "bf16", 3)
    changed = differences(owners, before)
    zerocore.as_deepspeed.uninstall()
    assert "torch.Tensor.data_ptr is new" in changed, changed
    assert importlib.util.find_spec("deepspeed") is None
    return [f"after uninstall(): {each}" for each in differences(owners, before)
            if not each.startswith("transformers.integrations")]


def main():
    # torch's own lazy imports and caches come first: a plain loop without an engine.
    net = Net()
    for optimizer in (torch.optim.SGD, torch.optim.AdamW):
        net(torch.ones(2, 8)).sum().backward()
        optimizer(net.parameters()).step()
    owners = watched()
    before = snapshot(owners)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGCHLD, signal.SIGUSR1, signal.SIGSEGV)}
    for optimizer, dtype, stage in ((torch.optim.AdamW, "bf16", 3), (torch.optim.SGD, "fp16", 1), (torch.optim.AdamW, "bf16", 0)):
        train(optimizer, dtype, stage)
    found = differences(owners, before)
    found += after_uninstall(owners, before)
    found += [f"the handler of {number.name}" for number, handler in handlers.items() if signal.getsignal(number) is not handler]
    print("\n".join(found) or f"{len(owners)} modules and classes are as before", flush=True)
    return 1 if found else 0


sys.exit(main())
