"""Two ranks without numpy, which torch does not install: `without_numpy.py FOLDER`. Trains, saves, loads and exports, with
client states of several kinds."""

import pathlib
import sys


class WithoutNumpy:
    """A finder that finds all but numpy."""

    def __init__(self, finder):
        self._finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] == "numpy" else self._finder.find_spec(name, path, target)


sys.meta_path[:] = [WithoutNumpy(finder) for finder in sys.meta_path]

import torch  # noqa: E402
from torch import nn  # noqa: E402

import zerocore  # noqa: E402

STATE = {"epoch": 3, "raw": b"\x00\xff" * 5000, "counts": torch.arange(5), "nested": [1.5, {"a": bytearray(b"b")}]}


def engine_at(stage):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1.0, "zero_optimization": {"stage": stage}}
    return zerocore.initialize(model=net, optimizer=torch.optim.AdamW(net.parameters()), config=config)[0]


def main(folder):
    engine = engine_at(3)
    assert engine.load_checkpoint(f"{folder}/saved") == (None, {}) or engine.global_steps == 0
    for _ in range(2):
        engine.backward(engine(torch.ones(2, 6)).pow(2).mean())
        engine.step()
    engine.save_checkpoint(f"{folder}/saved", client_state=STATE)
    engine.export_model(f"{folder}/model")
    digest = engine.digest()
    engine.destroy()
    again = engine_at(1)
    _, state = again.load_checkpoint(f"{folder}/saved")
    assert again.digest() == digest and again.global_steps == 2
    assert state["epoch"] == 3 and state["raw"] == STATE["raw"] and state["nested"] == STATE["nested"], state
    assert torch.equal(state["counts"], STATE["counts"]), state
    assert pathlib.Path(folder, "model/model.safetensors").exists()
    print("without numpy", flush=True)


main(sys.argv[1])
