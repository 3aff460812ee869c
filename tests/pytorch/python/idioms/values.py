"""Values that the program sets: gradients, weights and states, by the functions of deepspeed.utils."""

import torch
import torch.distributed as dist

from idioms.harness import idiom

NO_PARTS = {stage: f"has no local part at stage {stage}" for stage in (0, 1, 2)}


def gradient_of(job, engine, name):
    if not job.plain:
        from zerocore import safe_get_full_grad
        return safe_get_full_grad(engine.module.get_parameter(name))
    gradient = engine.module.get_parameter(name).grad.clone()
    dist.all_reduce(gradient)
    return gradient / job.size


def set_gradient(job, engine, name, values):
    if not job.plain:
        from zerocore import safe_set_full_grad
        return safe_set_full_grad(engine.module.get_parameter(name), values)
    engine.module.get_parameter(name).grad = values


def mask(job, engine):
    """No gradient for two rows of the head, and twice that of a bias."""
    rows = gradient_of(job, engine, "head.weight")
    rows[:2] = 0
    set_gradient(job, engine, "head.weight", rows)
    set_gradient(job, engine, "inp.bias", 2 * gradient_of(job, engine, "inp.bias"))


def masked_steps(job, engine, at):
    """Three steps; `at` says before which engine.step() of an accumulation the gradients are changed."""
    seen = {}
    for step in range(3):
        for micro in range(job.idiom.accumulation):
            engine.backward(job.loss(engine))
            if micro == at:
                mask(job, engine)
                seen[f"seen {step}"] = gradient_of(job, engine, "head.weight")
            engine.step()
    return {**job.values(engine), **seen}


@idiom("gradients that are set between backward and step", accumulation=2)
def set_before_step(job):
    return masked_steps(job, job.start(job.net()), 1)


@idiom("gradients that are set among micro steps, which later ones add to", accumulation=2)
def set_among_micro_steps(job):
    return masked_steps(job, job.start(job.net()), 0)


@idiom("gradients that are set, which the step clips", config={"gradient_clipping": 0.05})
def set_and_clipped(job):
    return masked_steps(job, job.start(job.net(), gradient_clipping=0.05), 0)


@idiom("gradients that are set under fp16, without its loss scale", dtype="fp16", tolerance=2e-3,
       config={"fp16": {"enabled": True, "loss_scale": 1024}})
def set_under_fp16(job):
    net = job.net()
    engine = job.start(net, torch.optim.SGD(net.parameters(), lr=0.1))
    return masked_steps(job, engine, 0)


@idiom("a gradient that is set to zero leaves its rows as they are")
def frozen_rows(job):
    engine = job.start(job.net())
    job.micro_steps(engine)
    for _ in range(2):
        engine.backward(job.loss(engine))
        set_gradient(job, engine, "head.weight", torch.zeros(5, 18))
        set_gradient(job, engine, "head.bias", torch.zeros(5))
        engine.step()
    return job.values(engine)


@idiom("gradients that are set, and forgotten by zero_grad()", accumulation=2)
def set_and_forgotten(job):
    engine = job.start(job.net())
    for _ in range(2):
        engine.backward(job.loss(engine))
        engine.step()
        set_gradient(job, engine, "head.weight", torch.ones(5, 18))
        engine.zero_grad()
        engine.backward(job.loss(engine))
        engine.step()
    return job.values(engine)


@idiom("a gradient that is set before any has come", against_torch=False, refused="has no gradient yet")
def set_too_early(job):
    engine = job.start(job.net())
    job.micro_steps(engine)
    set_gradient(job, engine, "head.weight", torch.ones(5, 18))


@idiom("a gradient of another size", against_torch=False, refused="head.weight has 90 elements, of the shape (5, 18)")
def set_of_another_size(job):
    engine = job.start(job.net())
    engine.backward(job.loss(engine))
    set_gradient(job, engine, "head.weight", torch.ones(4, 18))


@idiom("gradients that each rank sets otherwise are rank 0's", against_torch=False)
def set_otherwise(job):
    engine = job.start(job.net())
    engine.backward(job.loss(engine))
    set_gradient(job, engine, "head.weight", torch.full((5, 18), float(job.rank + 1)))
    return {"gradient": gradient_of(job, engine, "head.weight") - 1}


@idiom("moments that are set between steps")
def moments(job):
    engine = job.start(job.net())
    job.micro_steps(engine, 2)
    parameter = engine.module.head.weight
    if job.plain:
        engine.optimizer.state[parameter]["exp_avg"].zero_()
        engine.optimizer.state[parameter]["exp_avg_sq"].mul_(4)
    else:
        from zerocore import safe_get_full_optimizer_state, safe_set_full_optimizer_state
        safe_set_full_optimizer_state(parameter, torch.zeros(5, 18), "exp_avg")
        squares = safe_get_full_optimizer_state(parameter, "exp_avg_sq")
        safe_set_full_optimizer_state(parameter, 4 * squares, "exp_avg_sq")
        assert not safe_get_full_optimizer_state(parameter, "exp_avg").any()
    job.micro_steps(engine, 2)
    return job.values(engine)


@idiom("a state that the optimizer does not have", against_torch=False, refused='has no "momentum_buffer"; expected one of')
def no_such_state(job):
    from zerocore import safe_set_full_optimizer_state
    engine = job.start(job.net())
    safe_set_full_optimizer_state(engine.module.head.weight, torch.zeros(5, 18), "momentum_buffer")


@idiom("a gradient that is set as a state", against_torch=False, refused="grad is not a state of the optimizer")
def gradient_as_state(job):
    from zerocore import safe_set_full_optimizer_state
    engine = job.start(job.net())
    safe_set_full_optimizer_state(engine.module.head.weight, torch.zeros(5, 18), "grad")


@idiom("local parts of a parameter, its gradient and its moments at stage 3", refused=NO_PARTS)
def local_parts(job):
    engine = job.start(job.net())
    job.micro_steps(engine)
    engine.backward(job.loss(engine))
    if job.plain:
        with torch.no_grad():
            engine.module.head.weight += 0.25
        engine.optimizer.state[engine.module.head.weight]["exp_avg"].mul_(2)
        set_gradient(job, engine, "head.bias", 3 * gradient_of(job, engine, "head.bias"))
    else:
        from zerocore import utils
        weight, bias = engine.module.head.weight, engine.module.head.bias
        part = utils.safe_get_local_fp32_param(weight)
        assert part.shape == weight.ds_tensor.shape == (weight.partition_numel(),)
        utils.safe_set_local_grad(bias, 3 * utils.safe_get_local_grad(bias))
        utils.safe_set_local_fp32_param(weight, part + 0.25)
        utils.safe_set_local_optimizer_state(weight, 2 * utils.safe_get_local_optimizer_state(weight, "exp_avg"), "exp_avg")
    engine.step()
    return job.values(engine)
