"""zerocore.initialize(): DeepSpeed's arguments, our engine."""

import copy
import json
import os
import weakref

import torch

from . import _native, construction, evaluation, optimizers, units
from .engine import Engine
from .ranks import ranks
from .zero import leave_meta


def initialize(args=None, model=None, optimizer=None, model_parameters=None, training_data=None,
               lr_scheduler=None, distributed_port=None, mpu=None, dist_init_required=None,
               collate_fn=None, config=None, mesh_param=None, config_params=None,
               unit_policy=units.children_of_lists):
    """Returns (engine, optimizer, dataloader, lr_scheduler), as deepspeed.initialize does.

    The optimizer comes from the config, or is a client's (torch's Adam, AdamW, SGD, Adagrad, or DeepSpeed's
    classes of these), or a callable that makes one from the parameters; the scheduler likewise. Without either, the
    engine evaluates, and has neither gradients nor states. `unit_policy(name, module, parent, lists_around)` says which modules are gathered as a whole."""
    if model is None:
        raise _native.UsageError("zerocore.initialize: model is missing")
    if mpu is not None or mesh_param is not None:
        raise _native.UsageError("zerocore.initialize: mpu and mesh_param (model parallelism) are not supported "
                                 "from Python")
    job = ranks()
    evaluation.end_all()
    document, name = read_config(args, config if config is not None else config_params)
    without_values, slices = leave_meta(model), construction.take_slices(model)
    client = _client_optimizer(optimizer, model, model_parameters)
    if model_parameters is not None:
        model_parameters = list(model_parameters)
    evaluates = client is None and document.get("optimizer") is None
    if evaluates:
        model.requires_grad_(False)
    groups = {}
    if client is not None:
        own, section = optimizers.replace(client)
        groups = optimizers.group_names(client.param_groups)
        document["optimizer"] = section["optimizer"]
        _add_groups(document, section["zero_core"]["param_groups"])
    elif any(isinstance(parameter, dict) for parameter in model_parameters or []):
        _add_groups(document, optimizers.configured_groups(model_parameters, document))
        groups = optimizers.group_names(model_parameters)
    _freeze_others(model, groups or model_parameters)
    compute = _compute_dtype(document)
    declared, around = units.declare(model, unit_policy, compute, lambda _, p: (groups.get(id(p), ""), True))
    native = _native.Model(job, declared, json.dumps(document), name)
    if evaluates:
        own = None
    elif client is None:
        trained = [p for p in model.parameters() if p.requires_grad]
        own = optimizers.EngineOptimizer(model_parameters if groups else trained, {"lr": _configured_rate(native)})
    engine = Engine(model, native, job, document, own, client is not None, around)
    for buffer in model.buffers():
        if buffer.device != engine.device:  # no checkpoint has it, so the engine has left it where it was
            buffer.data = buffer.data.to(engine.device)
    engine.take_values(without_values, slices)
    engine.lr_scheduler = _scheduler(lr_scheduler, own, engine)
    if training_data is not None:
        engine.training_dataloader = engine.deepspeed_io(training_data, collate_fn=collate_fn)
    return engine, own, engine.training_dataloader, engine.lr_scheduler


def add_config_arguments(parser):
    """Adds --deepspeed and --deepspeed_config, which initialize(args=...) reads."""
    group = parser.add_argument_group("DeepSpeed", "DeepSpeed configurations")
    group.add_argument("--deepspeed", default=False, action="store_true", help="use the engine")
    group.add_argument("--deepspeed_config", default=None, type=str, help="the config, a JSON file")
    return parser


def read_config(args, config):
    if config is None:
        config = getattr(args, "deepspeed_config", None)
    if config is None:
        raise _native.ConfigError("zerocore.initialize: no config: give config= a dict or the path of a JSON file, "
                                  "or args with deepspeed_config")
    if isinstance(config, dict):
        document = copy.deepcopy(config)
        if document.get("steps_per_print") == float("inf"):  # accelerate's way to say never
            document["steps_per_print"] = 0
        return document, "config"
    path = os.fspath(config)
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file), path
    except (OSError, ValueError) as error:
        raise _native.ConfigError(f"{path}: {error}") from None


def _client_optimizer(optimizer, model, model_parameters):
    if optimizer is None or isinstance(optimizer, torch.optim.Optimizer):
        return optimizer
    if callable(optimizer):
        return optimizer(list(model_parameters if model_parameters is not None else model.parameters()))
    raise _native.UsageError(f"zerocore.initialize: optimizer is a {type(optimizer).__name__}; expected an optimizer "
                             "of torch, or a callable that makes one")


def _add_groups(document, groups):
    document.setdefault("zero_core", {}).setdefault("param_groups", {}).update(groups)


def _freeze_others(model, chosen):
    """As in DeepSpeed, only the parameters that were given are trained: a list of them, or a dict by their ids."""
    if chosen is None:
        return
    kept = set(chosen) if isinstance(chosen, dict) else {id(parameter) for parameter in chosen}
    for parameter in model.parameters():
        if id(parameter) not in kept:
            parameter.requires_grad_(False)


def _compute_dtype(document):
    def on(section):
        return document.get(section, {}).get("enabled") is True
    return torch.bfloat16 if on("bf16") or on("bfloat16") else torch.float16 if on("fp16") else torch.float32


def _configured_rate(native):
    for line in native.describe_config().splitlines():
        path, _, value = line.partition(" = ")
        if path == "optimizer.params.lr":
            return float(value)
    return 1e-3


def _scheduler(scheduler, optimizer, engine):
    if optimizer is None:
        return None
    if scheduler is None:
        return ConfigScheduler(engine)
    if callable(scheduler) and not hasattr(scheduler, "step"):
        scheduler = scheduler(optimizer)
    followed = getattr(scheduler, "optimizer", optimizer)
    if followed is not optimizer:
        scheduler.optimizer = optimizer
    engine.follow_optimizer_rate()
    return scheduler


class ConfigScheduler:
    """The config's schedule, which the engine follows by itself."""

    def __init__(self, engine):
        self._engine = weakref.ref(engine)

    def step(self, *args, **kwargs):
        """The engine takes the next rate in each step that it applies."""

    def get_last_lr(self):
        return self._engine().get_lr()

    get_lr = get_last_lr

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        """The engine's checkpoints hold the count of steps, from which the rate follows."""
