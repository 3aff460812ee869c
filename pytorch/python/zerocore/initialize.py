"""zerocore.initialize(): DeepSpeed's arguments, ZeroCore's engine."""

import traceback

import torch

from . import (_native, buffers, config as configs, construction, ending, evaluation, module_state, norms, optimizers,
               parts, schedules, units)
from .engine import Engine
from .errors import AssertedUsage
from .integrations import accelerate
from .passes import engine_of, engines_before, refuse_shared
from .pipe import starting as pipelines
from .ranks import ranks
from .zero import leave_meta


def initialize(args=None, model=None, optimizer=None, model_parameters=None, training_data=None,
               lr_scheduler=None, distributed_port=None, mpu=None, dist_init_required=None,
               collate_fn=None, config=None, mesh_param=None, config_params=None,
               unit_policy=units.children_of_lists):
    """Returns (engine, optimizer, dataloader, lr_scheduler), as deepspeed.initialize does.

    `model`: an nn.Module, equal on all ranks. `optimizer`: one of torch's (Adam, AdamW, SGD, Adagrad, Adafactor,
    Muon) or of DeepSpeed's classes, or a callable that makes one from the parameters; without it, the config's.
    `lr_scheduler`: a scheduler of that optimizer, or a callable that makes one from it; it replaces the config's, with a
    notice. The one that acts is returned, or None. Without any optimizer the engine only evaluates, and has neither
    gradients nor optimizer states. `model_parameters`: the parameters to train (default: all that require
    gradients), or groups of them. `training_data`: a dataset, of which the dataloader returns micro-batches. `config`: a
    path, JSON, a dict or OmegaConf's; without it, args.deepspeed_config. `unit_policy(name, module, parent, lists_around)`
    returns whether a module becomes a unit. distributed_port and dist_init_required have no effect, since the launcher has
    started the ranks; `mpu` and `mesh_param` are refused. Collective; raises ConfigError for the config, and UsageError for other arguments."""
    if model is None:
        raise AssertedUsage("zerocore.initialize: model is missing")
    _refuse_unfit(model)
    if mpu is not None or mesh_param is not None:
        raise _native.UsageError("zerocore.initialize: mpu and mesh_param (model parallelism) are not supported "
                                 "from Python")
    job = ranks()
    accelerate.refuse_other_ranks(job)
    evaluation.end_all()
    source = configs.find(args, config if config is not None else config_params)
    settings = source.read()
    ending.end_collected(job)
    model = pipelines.in_stages(model, settings, job)
    _drop_scheduler(settings, lr_scheduler)
    before = engines_before(model)
    without_values, slices = leave_meta(model), construction.take_slices(model, engine_of)
    if model_parameters is not None:
        model_parameters = [_without_name(each) for each in model_parameters]
    thaw(model)
    client = _client_optimizer(optimizer, model, model_parameters)
    if optimizer is client and client is not None:
        _note_left_out(settings, model, client, model_parameters)
    if client is None and not settings.optimizer_given:
        _refuse_scheduler(lr_scheduler)
        freeze(model.parameters())
        own, names, others, scheduler = None, {}, [], None
    else:
        own, names, others = _given_parameters(settings, model, client, model_parameters, job)
        scheduler = _scheduler(lr_scheduler, own, client)
    if client is not None:
        optimizers.configure(settings, own, client)
    _note_model_and_keys(settings, source, model, client)
    dtype, matrices = _compute_dtype(settings), optimizers.updates_matrices(client)
    group_of = lambda parameter: names.get(id(parameter), "")  # noqa: E731
    if pipelines.is_in_stages(model):
        pipelines.refuse_others(others)
        native, around = pipelines.native_pipeline(model, job, settings, dtype, group_of, matrices), None
    else:
        declared, around = units.declare(model, unit_policy, dtype, group_of, others, settings.buffer_dtype, matrices)
        module_state.start_alike(model, job)
        native = _native.Model(job, declared, settings)
        units.tell_of_bytes(model, job.rank)
    if own is not None:
        own.follow(native)
    if dtype != torch.float32:
        norms.allow_fp32_statistics(model)
    try:
        engine = (pipelines.PipelineEngine(model, native, job, settings, source, own) if around is None else
                  Engine(model, native, job, settings, source, own, around, others))
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)  # they hold the native engine, which ends before the ranks do
        native = None
        raise
    for buffer in model.buffers():
        if buffer.device != engine.device:  # not persistent, so that the engine has left it on its device
            buffer.data = buffer.data.to(engine.device)
    engine.take_values(without_values, slices)
    for earlier in before if not engine.waits_for_values() else ():
        earlier.destroy()
    construction.return_freed_memory()
    if not engine.waits_for_values():
        native.take_memory()  # after the initial values are freed
    engine.lr_scheduler = scheduler
    if settings.scheduler_type and own is not None:
        engine.lr_scheduler = schedules.of_config(engine, settings, source.as_dict())
    engine.collate_fn = collate_fn
    if training_data is not None:
        engine.training_dataloader = engine.deepspeed_io(training_data)
        if pipelines.is_in_stages(model):
            engine.set_dataloader(engine.training_dataloader)
    return engine, own, engine.training_dataloader, engine.lr_scheduler


def add_config_arguments(parser):
    """Adds --deepspeed and --deepspeed_config, which initialize(args=...) reads."""
    group = parser.add_argument_group("DeepSpeed", "DeepSpeed configurations")
    group.add_argument("--deepspeed", default=False, action="store_true", help="use the engine")
    group.add_argument("--deepspeed_config", default=None, type=str, help="the config, a JSON file")
    return parser


def _refuse_unfit(model):
    """Raises UsageError for a module that exchanges gradients itself, is an engine already, or has parameters
    without shapes."""
    if not isinstance(model, torch.nn.Module):
        raise _native.UsageError(f"zerocore.initialize: model is a {type(model).__name__}; expected a torch.nn.Module")
    if isinstance(model, torch.jit.ScriptModule):
        raise _native.UsageError("zerocore.initialize: model is a ScriptModule of torch.jit, whose parts the engine cannot "
                                 "gather: give the module that it was made from")
    exchanging = {"DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "FSDPModule", "Engine"}
    for name, module in model.named_modules():
        if exchanging & {cls.__name__ for cls in type(module).__mro__ if cls.__module__.startswith(("torch.", "zerocore."))}:
            raise _native.UsageError(f"zerocore.initialize: {name or 'the model'} is a {type(module).__name__}, which has "
                                     "gradients of its own: give the module inside of it")
    for name, parameter in model.named_parameters():
        parts.refuse_unfit(name, parameter)
        if torch.nn.parameter.is_lazy(parameter):
            raise _native.UsageError(f"zerocore.initialize: parameter {name} of a lazy module has no shape yet: call the "
                                     "model once before")
    refuse_shared(model)
    buffers.refuse_unfit(model)


def _without_name(given):
    """Returns an entry of model_parameters; of named_parameters(), which torch's optimizers take too, the parameter."""
    if isinstance(given, dict) and not isinstance(given.get("params", ()), torch.Tensor):
        given["params"] = [_without_name(each) for each in given["params"]]
    elif isinstance(given, tuple) and len(given) == 2:
        given = given[1]
    if not isinstance(given, (dict, torch.Tensor)):
        raise _native.UsageError(f"zerocore.initialize: model_parameters has a {type(given).__name__}; expected parameters, as of "
                                 "model.parameters(), or groups of them (dicts with params)")
    return given


def _refuse_none_trained(model, given):
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise _native.UsageError(f"zerocore.initialize: {given} none of the parameters of the model, a {type(model).__name__}, that "
                                 "require gradients, so that nothing of it would be trained: take them from this model's "
                                 "parameters(), after it was copied or converted")


def _given_parameters(settings, model, client, model_parameters, job):
    """Returns _optimizer() of the parameters that the program has given, and freezes the others."""
    groups = client.param_groups if client is not None else optimizers.as_groups(model_parameters)
    trains = any(parameter.requires_grad for parameter in model.parameters())
    _freeze_others(model, [p for group in groups for p in group["params"]] if groups else model_parameters)
    if trains and not pipelines.is_in_stages(model):
        _refuse_none_trained(model, "model_parameters has" if client is None else "the optimizer's groups have")
    return _optimizer(settings, model, client, groups, pipelines.names_for(model, job))


def _note_model_and_keys(settings, source, model, client):
    """Notes what the engine does otherwise than the model and the config may let one expect."""
    _note_types(settings, model)
    units.note_codes(model, settings)
    buffers.note_shared_parts(model, settings)
    _note_clipping(settings, source, client)
    if settings.seed != 1234 and not settings.rank_independent:
        settings.note("seed: has no effect in Python: initial values and the order of data are the script's, by "
                      "torch.manual_seed() and its sampler")
    if settings.preempt_grace_s != 25:
        settings.note("zero_core.preempt_grace_s: zero run waits a minute longer than this for ranks that are told to stop; a script "
                      "decides itself whether it saves then")


def _client_optimizer(optimizer, model, model_parameters):
    if optimizer is None or isinstance(optimizer, torch.optim.Optimizer):
        return optimizer
    if callable(optimizer):
        return optimizer(list(model_parameters if model_parameters is not None else model.parameters()))
    raise _native.UsageError(f"zerocore.initialize: optimizer is a {type(optimizer).__name__}; expected an optimizer "
                             "of torch, or a callable that makes one")


def _note_left_out(settings, model, client, model_parameters):
    """Adds a notice if model_parameters has parameters that the client's optimizer lacks, which decides."""
    own = {id(parameter) for group in client.param_groups for parameter in group["params"]}
    groups = [group["params"] if isinstance(group, dict) else group for group in model_parameters or []]
    given = {id(p) for group in groups for p in ([group] if isinstance(group, torch.Tensor) else group)}
    names = [name for name, parameter in model.named_parameters() if id(parameter) in given - own and parameter.requires_grad]
    if names:
        settings.note(f"model_parameters: {len(names)} of these parameters are not in the optimizer's groups, {names[0]} among "
                      "them, and are frozen: the optimizer goes before model_parameters, as in DeepSpeed")


def _optimizer(settings, model, client, groups, names_of):
    """Returns (the engine's optimizer, {id of a parameter: name of its group}, [(name, parameter)] of the parameters
    in the groups that the model does not own). `names_of`: optimizers.names_of(), over all stages of a pipeline."""
    inside = {id(parameter) for parameter in (*model.parameters(), *pipelines.of_other_stages(model))}
    if groups is None:
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        return optimizers.of_config(settings, [{"params": trained}], [names_of([{"params": trained}])[0] and ""]), {}, []
    names = names_of(groups)
    if client is not None:
        own = optimizers.of_client(client, names, bool(settings.scheduler_type))
    else:
        optimizers.configured_groups(settings, groups, names)
        own = optimizers.of_config(settings, groups, names)
    by_id, others = {}, []
    for name, group in zip(names, groups):
        for parameter in group["params"]:
            by_id[id(parameter)] = name or ""
            if id(parameter) not in inside and parameter.requires_grad:
                _refuse_owned(parameter)
                others.append((f"criterion.{len(others)}", parameter))
    return own, by_id, others


def _refuse_owned(parameter):
    engine = engine_of(parameter)
    if engine is not None:
        raise _native.UsageError(f"zerocore.initialize: the optimizer's groups have {engine.name_of(parameter)} of the "
                                 f"engine of a {type(engine.module).__name__}, which trains it already: give each engine "
                                 "an optimizer of its own parameters")


def _freeze_others(model, chosen):
    """Freezes all parameters that were not given to the optimizer, as DeepSpeed does."""
    if chosen is None:
        return
    kept = {id(parameter) for parameter in chosen}
    freeze(parameter for parameter in model.parameters() if id(parameter) not in kept)


def freeze(parameters):
    """Freezes parameters, and marks those that were trained for thaw()."""
    for parameter in parameters:
        if parameter.requires_grad:
            parameter.requires_grad_(False)
            parameter._zerocore_frozen = True


def thaw(model):
    """Undoes freeze() of an earlier engine: the optimizer of this one decides."""
    for parameter in model.parameters():
        if parameter.__dict__.pop("_zerocore_frozen", False):
            parameter.requires_grad_(True)


def _note_clipping(settings, source, client):
    """For authors whose optimizer, or whose FSDP config, has never clipped."""
    names = {name for path in source.overrides for name in path.split(".")} | set(_keys(source.as_dict()))
    by_fsdp = any(name.startswith("fsdp_") for name in names)
    if (client is None and not by_fsdp) or names & {"gradient_clipping", "max_grad_norm"} or settings.gradient_clipping != 1.0:
        return
    settings.note("gradient_clipping: is not in the config, and its default is 1.0, as in DeepSpeed's documentation: each step "
                  "scales gradients down to this norm; 0 ends that, and 1.0 in the config this notice")


def _keys(value):
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield str(key)
        yield from _keys(inner)


def _note_types(settings, model):
    """For models that were loaded in another type than the config's: the engine computes in one type."""
    own = _compute_dtype(settings)
    for dtype, key in ((torch.float64, ""), (torch.bfloat16, "bf16"), (torch.float16, "fp16")):
        names = [name for name, parameter in model.named_parameters() if parameter.dtype == dtype]
        if names and dtype != own and (key or own == torch.float32):
            by_key = f'; "{key}": {{"enabled": true}} in the config keeps {key}' if key else ""
            settings.note(f"{len(names)} parameters are {key or 'float64'}, {names[0]} among them: they are trained in "
                          f"{_SHORT[own]}, and their modules need {_SHORT[own]} inputs{by_key}")


_SHORT = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


def _compute_dtype(settings):
    return torch.bfloat16 if settings.bf16 else torch.float16 if settings.fp16 else torch.float32


def _drop_scheduler(settings, scheduler):
    """Lets an argument of initialize() replace the config's scheduler, as in DeepSpeed."""
    if scheduler is None or not settings.scheduler_type:
        return
    made = scheduler.__name__ if hasattr(scheduler, "__name__") else type(scheduler).__name__
    settings.note(f"scheduler: the config's {settings.scheduler_type} does not act, as initialize() was given the "
                  f"lr_scheduler {made}, which goes before it, as in DeepSpeed")
    settings.drop_scheduler()


def _refuse_scheduler(scheduler):
    if scheduler is not None:
        raise AssertedUsage("zerocore.initialize: there is an lr_scheduler and no optimizer, so that the engine only evaluates: "
                            'give initialize() the optimizer too, or name one in the config ("optimizer": {"type": ...})')


def _scheduler(scheduler, own, client):
    """Returns the program's scheduler, which acts by writing into the groups; None if there is none."""
    if scheduler is None:
        return None
    if callable(scheduler) and (isinstance(scheduler, type) or not hasattr(scheduler, "step")):
        return scheduler(own)
    if not hasattr(scheduler, "step"):
        raise _native.UsageError(f"zerocore.initialize: lr_scheduler is a {type(scheduler).__name__}; expected a scheduler, which "
                                 "has a step(), or a callable that makes one from the optimizer")
    followed = getattr(scheduler, "optimizer", own)
    if followed is not own and followed is not client:
        raise AssertedUsage(
            f"zerocore.initialize: lr_scheduler is a {type(scheduler).__name__} over another optimizer than the engine's, "
            "so its rates would have no effect: give initialize() its optimizer too, or give a callable that makes the "
            "scheduler from the engine's optimizer")
    return scheduler
