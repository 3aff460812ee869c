"""ZeroCore for PyTorch: the ZeRO stages for any nn.Module, chosen by a DeepSpeed config.

    import zerocore

    engine, optimizer, loader, scheduler = zerocore.initialize(model=model, config="ds_config.json")
    for batch in loader:
        loss = engine(batch)
        engine.backward(loss)
        engine.step()

Start it with `torchrun --nproc-per-node 4 train.py` or `mpirun -n 4 python train.py`. The arguments, the
config and the engine's methods are DeepSpeed's; docs/pytorch.md of the repository lists the differences.
"""

# isort: off
from ._native import ConfigError, DisagreementError, Error, PeerFailed, StalledError, UsageError  # first: it looks for torch
# isort: on
import zerocore_startup  # noqa: E402, F401  ZEROCORE_AS_DEEPSPEED

from . import comm, zero  # noqa: E402
from ._build import version as __version__  # noqa: E402
from .accelerator import get_accelerator  # noqa: E402
from .comparison import compare_stages  # noqa: E402
from .distributed import init_distributed  # noqa: E402
from .engine import Engine  # noqa: E402
from .examination import Examination, doctor  # noqa: E402
from .global_sampler import GlobalSampler  # noqa: E402
from .initialize import add_config_arguments, initialize  # noqa: E402
from .planning import plan  # noqa: E402
from .ranks import ranks  # noqa: E402
from .receiver import WeightReceiver  # noqa: E402
from .utils import (  # noqa: E402
    safe_get_full_fp32_param,
    safe_get_full_grad,
    safe_get_full_optimizer_state,
    safe_get_local_fp32_param,
    safe_get_local_grad,
    safe_get_local_optimizer_state,
    safe_set_full_fp32_param,
    safe_set_full_grad,
    safe_set_full_optimizer_state,
    safe_set_local_fp32_param,
    safe_set_local_grad,
    safe_set_local_optimizer_state,
    safe_update_full_grad_vectorized,
)

__all__ = [
    "ConfigError", "DisagreementError", "Engine", "Error", "Examination", "GlobalSampler", "PeerFailed", "StalledError",
    "UsageError", "WeightReceiver",
    "add_config_arguments", "comm", "compare_stages", "doctor", "get_accelerator", "init_distributed", "initialize", "plan", "ranks",
    "safe_get_full_fp32_param",
    "safe_get_full_grad", "safe_get_full_optimizer_state", "safe_get_local_fp32_param", "safe_get_local_grad",
    "safe_get_local_optimizer_state", "safe_set_full_fp32_param", "safe_set_full_grad", "safe_set_full_optimizer_state",
    "safe_set_local_fp32_param", "safe_set_local_grad", "safe_set_local_optimizer_state",
    "safe_update_full_grad_vectorized", "zero",
]


def __getattr__(name):
    advice = "" if name.startswith("_") else (
        "; for DeepSpeed's other names, leave `import deepspeed` in the script, after `import zerocore.as_deepspeed` or with "
        "ZEROCORE_AS_DEEPSPEED=1")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{advice}")
