"""Calls of the engine, the optimizer and the utilities return what DeepSpeed's do: calls_deepspeed.py FOLDER."""

import importlib
import pathlib
import sys
import warnings
from importlib.util import find_spec

import deepspeed
import torch
from deepspeed import comm
from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
from deepspeed.ops.adam import DeepSpeedCPUAdam
from deepspeed.ops.lion import DeepSpeedCPULion
from deepspeed.runtime.base_optimizer import ZeROOptimizer
from deepspeed.utils import (
    safe_get_full_fp32_param, safe_get_full_grad, safe_get_full_optimizer_state, safe_get_local_grad,
    safe_set_full_fp32_param, safe_set_full_grad, safe_update_full_grad_vectorized,
)
from torch import nn

deepspeed.init_distributed()
ADAM = {"type": "Adam", "params": {"lr": 0.01}}
FP16 = {"enabled": True, "initial_scale_power": 8}


class Net(nn.Module):
    """Frozen and tied parameters among others."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.first.weight.requires_grad_(False)
        self.last.weight = self.second.weight

    def forward(self, x):
        return self.last(self.second(self.first(x))).float().pow(2).mean()


def start(model=None, seed=1, stage=1, accumulation=1, **more):
    """Returns (engine, optimizer) of a model, by default of a Net."""
    torch.manual_seed(seed)
    model = Net() if model is None else model
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": accumulation, "optimizer": ADAM,
              "zero_optimization": {"stage": stage}, **more}
    engine, optimizer, _, _ = deepspeed.initialize(model=model, config=config)
    return engine, optimizer


def batch(seed=0, dtype=torch.float32):
    torch.manual_seed(100 + seed + comm.get_rank())
    return torch.randn(2, 4).to(dtype)


def refuses(call, part, kind=AssertionError):
    try:
        call()
    except kind as error:
        assert part in str(error), error
    else:
        raise AssertionError(f"nothing refused it: {part}")


def values(engine):
    """All values of the engine's model, as one vector."""
    return torch.cat([engine.read(parameter).flatten() for parameter in engine.module.parameters()])


def applied():
    """was_step_applied() is true after the end of an accumulation alone."""
    engine, _ = start(accumulation=3)
    seen = []
    for step in range(7):
        engine.backward(engine(batch(step)))
        engine.step()
        seen.append(engine.was_step_applied())
    assert seen == [False, False, True, False, False, True, False], seen
    assert engine.get_batch_info()[2]() == 3 and engine.get_mom() == [(0.9, 0.999)]


def every_parameter():
    """Values, gradients and states of frozen, tied and other parameters in each phase of a step."""
    for stage in (0, 1, 2, 3):
        engine, _ = start(stage=stage, bf16={"enabled": True})
        frozen, tied = engine.module.first.weight, engine.module.last.weight
        reads = [safe_get_full_fp32_param, safe_get_full_grad, lambda p: safe_get_full_optimizer_state(p, "exp_avg_sq")]
        for phase in ("start", "backward", "step"):
            if phase == "backward":
                engine.backward(engine(batch(0, torch.bfloat16)))
            elif phase == "step":
                engine.step()
            assert [read(frozen) for read in reads] == [None] * 3, phase
            assert stage < 3 or safe_get_local_grad(frozen) is None
            for read in reads if phase != "start" else [safe_get_full_fp32_param]:
                assert read(tied).shape == (4, 4) and read(engine.module.first.bias).dtype == torch.float32
        assert safe_set_full_grad(frozen, torch.ones(4, 4)) is None
        safe_set_full_fp32_param(frozen, torch.full((4, 4), 0.5))
        assert engine.read(frozen).eq(0.5).all()
        engine.backward(engine(batch(0, torch.bfloat16)))
        before = safe_get_full_grad(tied)
        safe_update_full_grad_vectorized(list(engine.module.parameters()), lambda gradient, parameter: 2 * gradient)
        assert torch.equal(safe_get_full_grad(tied), 2 * before)
        engine.destroy()


def optimizer_attributes():
    """The optimizer's and the engine's names of the loss scale, with fp16 and without."""
    engine, optimizer = start(fp16={**FP16, "loss_scale_window": 1, "hysteresis": 1}, stage=2)
    assert isinstance(optimizer, ZeROOptimizer) and optimizer.optimizer.param_groups is optimizer.param_groups
    assert engine.loss_scale() == 0 and engine.initial_dynamic_scale() == 256 and optimizer.needs_scaler()
    scales = []
    for step in range(3):
        scales.append(optimizer.cur_scale)
        engine.backward(engine(batch(step, torch.float16)))
        engine.step()
    assert scales == [256, 256, 512] and optimizer.loss_scaler.cur_scale == optimizer.loss_scale == 1024, scales
    assert optimizer.dynamic_loss_scale and optimizer.loss_scale_config.cur_iter == 3
    assert optimizer._global_grad_norm == engine.get_global_grad_norm() > 0
    engine, optimizer = start()
    assert optimizer.cur_scale == 1 and not optimizer.dynamic_loss_scale and not optimizer.needs_scaler()
    assert engine.optimizer_name() == "Adam" and engine.scheduler_name() is None
    net = Net()
    client = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1)
    engine, optimizer, *_ = deepspeed.initialize(model=net, optimizer=client, config={"train_micro_batch_size_per_gpu": 2})
    assert optimizer.optimizer is client and engine.optimizer_name() == "SGD" and engine.get_mom() == [0]


def blocks():
    """Passes inside no_sync() and coalesce_grad_reduction() add up, and a step inside is refused."""
    ends = []
    for block in ("no_sync", "coalesce_grad_reduction", None):
        engine, _ = start(stage=3)
        with getattr(engine, block)() if block else torch.enable_grad():
            for step in range(3):
                engine.backward(engine(batch(step)))
            if block:
                refuses(engine.step, "inside no_sync context manager")
                refuses(lambda: engine.coalesce_grad_reduction().__enter__(), "nested inside another")
        engine.step()
        ends.append(values(engine))
    assert torch.equal(ends[0], ends[2]) and torch.equal(ends[1], ends[2])


def unmanaged():
    """managed_gradient_accumulation false: each step() ends an accumulation of any length."""
    engine, _ = start(accumulation=4, managed_gradient_accumulation=False)
    other, _ = start(accumulation=4)
    for length in (2, 5, 1):
        for index in range(length):
            other.set_gradient_accumulation_boundary(index == length - 1)
            for each in (engine, other):
                each.backward(each(batch(index)))
        engine.step()
        other.step()
        assert engine.was_step_applied() and torch.equal(values(engine), values(other))
    assert engine.global_steps == 3 and engine.global_samples == (2 + 5 + 1) * 2 * engine.world_size
    refuses(lambda: engine.set_gradient_accumulation_boundary(True), "managed_gradient_accumulation")


def autocast():
    """torch_autocast: as torch.autocast around the module, at each stage; float16 has no loss scale."""
    torch.manual_seed(3)
    start_of = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4)).state_dict()
    ends = []
    for stage in (0, 1, 2, 3):
        module = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4))
        module.load_state_dict(start_of)
        plain = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4))
        plain.load_state_dict(start_of)
        engine, _ = start(module, stage=stage, torch_autocast={"enabled": True, "dtype": "bfloat16"})
        output = engine(batch())
        with torch.autocast("cpu", torch.bfloat16):
            expected = plain(batch())
        assert output.dtype == torch.bfloat16 and torch.equal(output, expected)
        engine.backward(output.float().pow(2).mean())
        engine.step()
        ends.append(values(engine))
        assert engine.module[0].weight.dtype == torch.float32 and engine.torch_autocast_enabled()
    assert all(torch.equal(end, ends[0]) for end in ends)
    refuses(lambda: start(torch_autocast={"enabled": True, "dtype": "fp16"}), "torch_autocast.dtype: float16",
            deepspeed.DeepSpeedConfigError)


def by_hand():
    """backward() outside of the engine: of several engines' losses at once, also under fp16, where calls of the engine
    need its scale."""
    for more, dtype in (({}, torch.float32), ({"fp16": FP16}, torch.float16)):
        both = [start(seed=seed, stage=stage, **more)[0] for seed, stage in ((1, 2), (2, 3))]
        for step in range(2):
            sum(engine.module(batch(step, dtype)) for engine in both).backward()
            for engine in both:
                engine._backward_epilogue()
                engine.step()
        ends = [values(engine) for engine in both]
        for end, (seed, stage) in zip(ends, ((1, 2), (2, 3))):
            engine, _ = start(seed=seed, stage=stage, **more)
            for step in range(2):
                engine.backward(engine(batch(step, dtype)))
                engine.step()
            assert torch.allclose(end, values(engine), rtol=0, atol=1e-3 if more else 1e-6), (end - values(engine)).abs().max()
    engine, _ = start(fp16=FP16)
    loss = engine(batch(0, torch.float16))
    refuses(lambda: engine.scale(loss.expand(2)), "scalar tensor")
    refuses(loss.backward, "Loss scaling is required", RuntimeError)


def partial_loads(folder):
    """load_checkpoint() of weights alone, without the optimizer's states, and without the schedule's."""
    schedule = {"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.1, "warmup_num_steps": 8,
                                                             "warmup_type": "linear"}}}
    saved, _ = start(stage=3, **schedule)
    for step in range(3):
        saved.backward(saved(batch(step)))
        saved.step()
    saved.save_checkpoint(folder, client_state={"epoch": 7})
    name = saved.module.second.weight
    for stage in (1, 3):
        for options, steps, iteration in (({"load_module_only": True}, 0, -1), ({"load_optimizer_states": False}, 3, 2),
                                          ({"load_optimizer_states": False, "load_lr_scheduler_states": False}, 3, -1),
                                          ({"load_lr_scheduler_states": False}, 3, -1), ({}, 3, 2)):
            if options.get("load_module_only"):
                options["load_lr_scheduler_states"] = False
            engine, _ = start(seed=5, stage=stage, **schedule)
            path, state = engine.load_checkpoint(folder, **options)
            assert path.endswith("global_step3") and state == {"epoch": 7}, (path, state)
            assert torch.equal(values(engine), values(saved)), options
            assert engine.global_steps == steps and engine.lr_scheduler.last_batch_iteration == iteration, options
            assert abs(engine.get_lr()[0] - (0.1 * iteration / 8 if iteration >= 0 else 0)) < 1e-12, (options, engine.get_lr())
            moments = safe_get_full_optimizer_state(engine.module.second.weight, "exp_avg")
            whole = options.get("load_optimizer_states", True) and not options.get("load_module_only")
            assert torch.equal(moments, safe_get_full_optimizer_state(name, "exp_avg")) == whole, options
            assert whole or not moments.any()
            engine.backward(engine(batch()))
            engine.step()
            assert engine.lr_scheduler.last_batch_iteration == iteration + 1, options
            engine.destroy()
    other, _ = start(nn.Linear(4, 4))
    refuses(lambda: other.load_checkpoint(folder, load_module_only=True), "the checkpoint has no parameter weight",
            RuntimeError)


def rounded():
    """zero_core.round_initial_weights: master weights begin as DeepSpeed's, at each way to start."""
    for stage in (0, 3):
        for key in (False, True):
            torch.manual_seed(1)
            with deepspeed.zero.Init(enabled=stage == 3):
                net = nn.Linear(4, 4)
            torch.manual_seed(1)
            expected = nn.Linear(4, 4).weight.detach()
            engine, _ = start(net, stage=stage, bf16={"enabled": True}, zero_core={"round_initial_weights": key})
            master = safe_get_full_fp32_param(engine.module.weight)
            assert torch.equal(master, expected.bfloat16().float() if key else expected), (stage, key)


def replaced():
    """A step of the optimizer's object and data of a gradient, which the engine would not use, are refused."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)  # wraps it, without another effect
    step = optimizer.step
    optimizer.step = lambda closure=None: step(closure)
    make = lambda: deepspeed.initialize(model=model, optimizer=optimizer, config={  # noqa: E731
        "train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1.0})[0]
    refuses(make, "SGD: its step was replaced on this object", Exception)
    optimizer.step = step
    engine = make()
    engine.backward(engine(batch()))
    model.second.weight.grad.data = torch.ones(4, 4)
    refuses(engine.step, "second.weight was set by the program", Exception)
    engine.destroy()
    make().destroy()  # the step is the first engine's now


def batch_sizes(folder):
    """set_train_batch_size() changes the number of micro-batches of the next steps, whose mean is that of all their samples;
    counters go on, also in a checkpoint."""
    ranks = comm.get_world_size()
    for stage in (0, 2, 3):
        engine, _ = start(stage=stage, optimizer={"type": "SGD", "params": {"lr": 0.1}})
        torch.manual_seed(1)
        plain = Net()
        number = 0
        for count in (1, 3, 2):
            engine.set_train_batch_size(2 * count * ranks)
            assert engine.get_batch_info()[0]() == 2 * count * ranks and engine.gradient_accumulation_steps() == count
            rows = []
            for micro in range(count):
                number += 1
                engine.backward(engine(batch(number)))
                if micro + 1 < count:
                    refuses(lambda: engine.set_train_batch_size(2 * ranks), "micro-batches of this step have begun", Exception)
                engine.step()
                assert engine.was_step_applied() == (micro + 1 == count)
                for rank in range(ranks):
                    torch.manual_seed(100 + number + rank)
                    rows.append(torch.randn(2, 4))
            loss = sum(plain(row) for row in rows) / len(rows)
            trained = [parameter for parameter in plain.parameters() if parameter.requires_grad]
            for parameter, gradient in zip(trained, torch.autograd.grad(loss, trained)):
                parameter.data -= 0.1 * gradient
        expected = torch.cat([parameter.detach().flatten() for parameter in plain.parameters()])
        assert (values(engine) - expected).abs().max() < 1e-6, (stage, (values(engine) - expected).abs().max())
        engine.set_train_micro_batch_size(4)
        assert (engine.train_batch_size(), engine.global_samples) == (4 * 2 * ranks, 2 * 6 * ranks), engine.global_samples
        assert engine._config.train_micro_batch_size_per_gpu == 4 and engine._config.zero_optimization_stage == stage
        engine.save_checkpoint(f"{folder}/batch-{stage}")
        again, _ = start(stage=stage, optimizer={"type": "SGD", "params": {"lr": 0.1}})
        again.load_checkpoint(f"{folder}/batch-{stage}")
        assert again.global_samples == 2 * 6 * ranks and again.is_gradient_accumulation_boundary()
        again.global_samples = 5
        assert again.global_samples == 5
    refuses(lambda: engine.set_train_batch_size(3), "expected a multiple of", ValueError)
    refuses(lambda: engine.set_train_micro_batch_size(0), "expected a number from 1", ValueError)


def module_states():
    """load_module_state_dict() sets values and master weights, from rank 0."""
    for stage in (0, 3):
        engine, _ = start(stage=stage, bf16={"enabled": True})
        state = {name: torch.full_like(value, 0.5 + comm.get_rank()) for name, value in engine.module_state_dict().items()}
        for given in ({"module": state}, state):
            engine.load_module_state_dict(given)
            assert values(engine).eq(0.5).all() and safe_get_full_fp32_param(engine.module.second.weight).eq(0.5).all()
            engine.write(engine.module.second.weight, torch.zeros(4, 4))
        bias = state.pop("second.bias")
        for given in (state, {**state, "second.bias": bias, "other": bias}):
            refuses(lambda given=given: engine.load_module_state_dict({"module": given}), "", RuntimeError)
        engine.load_module_state_dict({"module": state}, allowed_missing_keys=["second.bias"])
        engine.load_module_state_dict({"module": state}, strict=False)
        engine.load_module_state_dict({"module": state}, custom_load_fn=lambda src, dst: dst.second.bias.data.fill_(2.0))
        assert engine.read(engine.module.second.bias).eq(2).all()
        engine.destroy()


def figures():
    """Values of the config by DeepSpeed's names, and what a write to them would not do."""
    engine, optimizer = start(zero_optimization={"stage": 2, "reduce_bucket_size": 5e4, "offload_optimizer": {"device": "cpu"}})
    assert engine.zero_cpu_offload() and engine.zero_offload_optimizer().device == "cpu" and engine.zero_offload_param() is None
    assert engine.zero_reduce_bucket_size() == 50000 and engine.zero_allgather_bucket_size() == 500000000
    assert not engine.wall_clock_breakdown() and comm.get_world_size(engine.data_parallel_group) == comm.get_world_size()
    assert engine.client_optimizer is None and optimizer.clip_grad == engine._config.gradient_clipping
    from deepspeed.runtime.zero.offload_config import OffloadDeviceEnum, OffloadStateTypeEnum
    optimizer.offload_states(include=[OffloadStateTypeEnum.optim_states], device=OffloadDeviceEnum.cpu)
    engine.reload_states()
    refuses(lambda: engine.offload_states(device=OffloadDeviceEnum.nvme), "expected cpu", ValueError)
    engine.enable_backward_allreduce = False
    for optimizer_class in (DeepSpeedCPUAdam, DeepSpeedCPUAdagrad, DeepSpeedCPULion):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            optimizer_class(Net().parameters(), fp32_optimizer_states=False)
        assert "fp32_optimizer_states=False has no effect" in str(said[0].message), said
    refuses(lambda: setattr(optimizer, "clip_grad", 0.5), "clip_grad cannot be set", Exception)
    for part, name in ((optimizer.loss_scaler, "cur_scale"), (engine._config, "gradient_accumulation_steps")):
        refuses(lambda part=part, name=name: setattr(part, name, 4), f"{name}", AttributeError)


def constructed():
    """zero.Init's dtype is that of the parameters before their constructor fills them; arguments that would do nothing end in an
    error or a notice."""
    class Made(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.empty(4, 4))
            self.seen = self.weight.dtype
            nn.init.normal_(self.weight)
            self.steps = nn.Parameter(torch.ones(2, dtype=torch.int64), requires_grad=False)

        def forward(self, x):
            return nn.functional.linear(x, self.weight).float().pow(2).mean()

    for given in ({"dtype": torch.bfloat16}, {"dtype": torch.bfloat16, "remote_device": "cpu", "pin_memory": True}):
        torch.manual_seed(1)
        with deepspeed.zero.Init(**given):
            net = Made()
        torch.manual_seed(1)
        expected = torch.empty(4, 4, dtype=torch.bfloat16).normal_()
        assert (net.seen, net.weight.dtype, net.steps.dtype) == (torch.bfloat16, torch.bfloat16, torch.int64)
        engine, _ = start(net, stage=3, bf16={"enabled": True})
        assert torch.equal(safe_get_full_fp32_param(net.weight), expected.float())
        engine.backward(engine(batch(0, torch.bfloat16)))
        engine.step()
    net = nn.Linear(4, 4)
    deepspeed.zero.Init(net, None, True, "nvme", dtype=torch.float16, zero_quantized_weights=True)
    assert net.weight.dtype == torch.float16
    deepspeed.zero.Init(enabled=False, dtype=torch.int8)
    deepspeed.zero.Init(data_parallel_group=torch.distributed.group.WORLD)
    alone = [torch.distributed.new_group([rank]) for rank in range(comm.get_world_size())][comm.get_rank()]
    for wrong, part in (({"dtype": torch.int8}, "dtype is torch.int8"), ({"remote_device": "gpu"}, "remote_device is 'gpu'"),
                        ({"mpu": net}, "mpu is given"), ({"data_parallel_group": alone}, "data_parallel_group has 1 ranks")):
        refuses(lambda wrong=wrong: deepspeed.zero.Init(**wrong), part, Exception)


def missing():
    engine, optimizer = start()
    for call, part in ((lambda: engine.timers, "in place of DeepSpeed's, has no attribute 'timers'"),
                       (lambda: optimizer.fp16_groups, "optimizer, in place of DeepSpeed's, has no attribute 'fp16_groups'")):
        refuses(call, part, AttributeError)
    refuses(lambda: deepspeed.zero.Init(none_such=1), "no argument 'none_such'", TypeError)
    for wrong in ([engine.module], {"a": engine.module.last.bias}, [[engine.module.last.bias]], "a", 3):
        refuses(lambda wrong=wrong: deepspeed.zero.GatheredParameters(wrong), "expected a parameter", Exception)


def other_scheduler(folder):
    """The state of another class of scheduler would be taken for one's own by torch."""
    def of(kind, **options):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return deepspeed.initialize(
            model=model, optimizer=optimizer, lr_scheduler=kind(optimizer, **options),
            config={"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1.0})[0]

    of(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=5).save_checkpoint(f"{folder}/cosine")
    engine = of(torch.optim.lr_scheduler.LinearLR)
    refuses(lambda: engine.load_checkpoint(f"{folder}/cosine"), "state of a CosineAnnealingLR, and lr_scheduler is a LinearLR",
            Exception)
    engine.load_checkpoint(f"{folder}/cosine", load_lr_scheduler_states=False)


def converted(folder):
    """Files of at most a size, of both kinds, have the weights of the engine."""
    engine, _ = start()
    engine.save_checkpoint(f"{folder}/converted")
    weights = {name: engine.read(parameter) for name, parameter in engine.module.named_parameters()}
    if comm.get_rank() != 0:
        return
    from deepspeed.utils.zero_to_fp32 import convert_zero_checkpoint_to_fp32_state_dict as convert
    for safe, limit, least in ((False, "5GB", 1), (False, 80, 3), (True, None, 1), (True, 80, 3)):
        if find_spec("safetensors" if safe else "huggingface_hub") is None:
            continue
        out = pathlib.Path(folder, f"files-{safe}-{limit}")
        convert(f"{folder}/converted", out, limit, safe)
        files = [path for path in out.iterdir() if path.suffix != ".json"]
        found = {}
        for path in files:
            found.update(importlib.import_module("safetensors.torch").load_file(path) if safe else torch.load(path))
        assert len(files) >= least and (len(files) > 1) == any(out.glob("*.index.json")), files
        assert all(torch.equal(found[name], value) for name, value in weights.items())


def loaders():
    """Loaders of the engine have every sample of the rank, the last batch too unless the config drops it."""
    data = torch.arange(5 * comm.get_world_size() * 4.0).view(-1, 4)
    for drops, sizes in ((False, [2, 2, 1]), (True, [2, 2])):
        torch.manual_seed(1)
        engine, _, loader, _ = deepspeed.initialize(
            model=Net(), training_data=torch.utils.data.TensorDataset(data),
            config={"train_micro_batch_size_per_gpu": 2, "optimizer": ADAM, "dataloader_drop_last": drops})
        assert [len(rows) for rows, in loader] == sizes and len(loader) == len(sizes)
        in_order = engine.deepspeed_io(torch.utils.data.TensorDataset(data), 5, "eval", collate_fn=lambda rows: torch.stack([
            row for row, in rows]))
        assert torch.equal(next(iter(in_order)), data[comm.get_rank()::comm.get_world_size()])
    refuses(lambda: engine.deepspeed_io(iter([])), "training data is a list_iterator", ValueError)


def arguments():
    """Parameters with names are taken, and arguments that would train nothing are refused at once."""
    begin = lambda **more: deepspeed.initialize(model=more.pop("model", None) or Net(), config={  # noqa: E731
        "train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1.0, **({} if "optimizer" in more else {"optimizer": ADAM})},
        **more)[0]
    trained = []
    for named in (False, True):
        torch.manual_seed(1)
        model = Net()
        of = lambda part, named=named: part.named_parameters() if named else part.parameters()  # noqa: E731
        engine = begin(model=model, model_parameters=[{"params": of(model.second)}, {"params": [model.last.bias], "lr": 0.1}])
        engine.backward(engine(batch()))
        engine.step()
        trained.append(values(engine))
    assert torch.equal(*trained)
    model = Net()
    engine = begin(model=model, model_parameters=model.named_parameters())
    engine.backward(engine(batch()))
    engine.step()
    for wrong, part in (({"model_parameters": []}, "model_parameters has none of the parameters of the model, a Net"),
                        ({"model_parameters": list(Net().parameters())}, "model_parameters has none of the parameters"),
                        ({"model_parameters": dict(Net().named_parameters())}, "model_parameters has a str"),
                        ({"optimizer": torch.optim.SGD(Net().parameters(), lr=0.1)}, "the optimizer's groups have none"),
                        ({"lr_scheduler": "cosine"}, "lr_scheduler is a str"),
                        ({"model": torch.jit.trace(nn.Linear(4, 4), torch.ones(1, 4))}, "ScriptModule")):
        refuses(lambda wrong=wrong: begin(**wrong), part, Exception)
    step = lambda optimizer: torch.optim.lr_scheduler.LinearLR(optimizer)  # noqa: E731
    for made in (step, torch.optim.lr_scheduler.LinearLR):
        engine = begin(lr_scheduler=made)
        engine.backward(engine(batch()))
        engine.step()
        assert engine.lr_scheduler.last_epoch == 1


def two_configs():
    """A config in both arguments is refused, unless they are one."""
    config = {"train_micro_batch_size_per_gpu": 2, "optimizer": ADAM}
    args = type("Arguments", (), {"deepspeed_config": "other.json"})
    refuses(lambda: deepspeed.initialize(args=args, model=Net(), config=config), "there are two configs")


for case in (applied, every_parameter, optimizer_attributes, blocks, unmanaged, autocast, by_hand, rounded, replaced,
             module_states, figures, constructed, missing, arguments, loaders, two_configs):
    case()
for case in (partial_loads, other_scheduler, converted, batch_sizes):
    case(sys.argv[1])
print("every call")
