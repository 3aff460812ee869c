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

import torch
import zerocore_startup  # noqa: F401  ZEROCORE_AS_DEEPSPEED

from ._build import torch_version as _built_for


def _check_torch():
    here = torch.__version__.split("+")[0].split(".")[:2]
    there = _built_for.split("+")[0].split(".")[:2]
    if here != there:
        raise ImportError(
            f"zerocore was built against torch {_built_for}, and this is torch {torch.__version__}; "
            "torch's binary interface changes from one minor version to the next: install the wheel for "
            f"torch {'.'.join(here)}, or build zerocore in this environment (pip install --no-build-isolation .)")


_check_torch()

from . import zero  # noqa: E402
from ._native import (  # noqa: E402
    ConfigError,
    DisagreementError,
    Error,
    PeerFailed,
    StalledError,
    UsageError,
)
from .comparison import compare_stages  # noqa: E402
from .distributed import explain_missing_ranks, init_distributed  # noqa: E402
from .engine import Engine  # noqa: E402
from .examination import Examination, doctor  # noqa: E402
from .global_sampler import GlobalSampler  # noqa: E402
from .initialize import add_config_arguments, initialize  # noqa: E402
from .planning import plan  # noqa: E402
from .ranks import ranks  # noqa: E402
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
)

explain_missing_ranks()
__version__ = "0.1.0"
__all__ = [
    "ConfigError", "DisagreementError", "Engine", "Error", "Examination", "GlobalSampler", "PeerFailed", "StalledError",
    "UsageError",
    "add_config_arguments", "compare_stages", "doctor", "init_distributed", "initialize", "plan", "ranks",
    "safe_get_full_fp32_param",
    "safe_get_full_grad", "safe_get_full_optimizer_state", "safe_get_local_fp32_param", "safe_get_local_grad",
    "safe_get_local_optimizer_state", "safe_set_full_fp32_param", "safe_set_full_grad", "safe_set_full_optimizer_state",
    "safe_set_local_fp32_param", "safe_set_local_grad", "safe_set_local_optimizer_state", "zero",
]
