"""Orders of calls: passes, evaluations, saves and reads in the places that plain torch allows."""

import contextlib

import torch
from torch import nn

from idioms.harness import Net, idiom


def consistency(job, engine, second, with_grad=False):
    """A loss whose target comes from another pass of the same model."""
    x, y = job.batch()
    if second == "before":
        with torch.no_grad():
            other = engine(y.repeat(1, 2)[:, :9])
        prediction = engine(x)
    else:
        prediction = engine(x)
        if second == "eval":
            engine.module.eval() if job.plain else engine.eval()
        with torch.no_grad():
            other = engine(y.repeat(1, 2)[:, :9])
        if second == "eval":
            engine.module.train() if job.plain else engine.train()
    return nn.functional.mse_loss(prediction, y) + nn.functional.mse_loss(prediction, other)


def train_with(job, second, steps=3):
    engine = job.start(job.net())
    for _ in range(steps * job.idiom.accumulation):
        engine.backward(consistency(job, engine, second))
        engine.step()
    return job.values(engine)


@idiom("a pass under no_grad between forward and backward")
def no_grad_between(job):
    return train_with(job, "train")


@idiom("an evaluation between forward and backward, with accumulation", accumulation=2)
def evaluation_between(job):
    return train_with(job, "eval")


@idiom("a pass under no_grad before each micro-batch", accumulation=2)
def no_grad_before(job):
    return train_with(job, "before")


@idiom("evaluation, saves and reads among micro-batches", accumulation=4)
def among_micro_steps(job):
    engine = job.start(job.net())
    kept = []
    for micro in range(8):
        loss = job.loss(engine)
        if micro == 2 and not job.plain:
            kept.append(engine.read(engine.module.head.weight).sum())
        engine.backward(loss)
        if micro % 4 == 1 and not job.plain:
            engine.save_checkpoint(job.folder, tag=f"at{micro}")
            engine.digest()
            import zerocore
            with zerocore.zero.GatheredParameters(engine.module.head.weight):
                kept.append(engine.module.head.weight.detach().sum())
        if micro % 4 == 2:
            x, _ = job.batch()
            with torch.no_grad():
                engine(x)
        engine.step()
    return job.values(engine)


@idiom("two backwards of one forward")
def two_backwards(job):
    engine = job.start(job.net())
    for _ in range(3):
        x, y = job.batch()
        prediction = engine(x)
        engine.backward(nn.functional.mse_loss(prediction, y), retain_graph=True)
        engine.backward(prediction.abs().mean())
        engine.step()
    loss = job.loss(engine)
    for gradient in (torch.ones(()), torch.full((), 0.5)):  # and no operation of torch between the passes
        loss.backward(gradient, retain_graph=True)
    engine.step()
    return job.values(engine)


@idiom("several forwards and backwards before one step")
def several_before_step(job):
    engine = job.start(job.net())
    for _ in range(3):
        for _ in range(3):
            engine.backward(job.loss(engine))
        engine.step()
    return job.values(engine)


@idiom("two forwards, two backwards in the other order")
def other_order(job):
    engine = job.start(job.net())
    for _ in range(3):
        first, second = job.loss(engine), job.loss(engine)
        engine.backward(second)
        engine.backward(first)
        engine.step()
    return job.values(engine)


@idiom("more forwards before a backward than in the first step")
def more_forwards_later(job):
    engine = job.start(job.net())
    for forwards in (1, 3, 2, 1):
        engine.backward(sum(job.loss(engine) for _ in range(forwards)))
        engine.step()
    return job.values(engine)


@idiom("a forward whose backward never comes")
def forward_alone(job):
    engine = job.start(job.net())
    for step in range(4):
        job.loss(engine)
        if step % 2:
            job.loss(engine)
        engine.backward(job.loss(engine))
        engine.step()
    return job.values(engine)


@idiom("loss.backward() by hand")
def backward_by_hand(job):
    engine = job.start(job.net())
    for _ in range(3):
        job.loss(engine).backward()
        engine.step()
    return job.values(engine)


@idiom("zero_grad() forgets what was accumulated", accumulation=2)
def zero_grad(job):
    engine = job.start(job.net())
    for step in range(3):
        engine.backward(job.loss(engine))
        engine.zero_grad()
        for _ in range(2):
            engine.backward(job.loss(engine))
            engine.step()
    return job.values(engine)


@idiom("zero_grad() of torch's kind, between forward and backward")
def zero_grad_of_model(job):
    engine = job.start(job.net())
    for step in range(3):
        engine.backward(job.loss(engine))
        loss = job.loss(engine)
        engine.module.zero_grad()
        engine.backward(loss)
        engine.step()
    return job.values(engine)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 9))

    def forward(self, x):
        return self.layers(x)


def adversaries(job, accumulation):
    """A GAN as in DeepSpeedExamples: G's loss goes through D, whose zero_grad() clears the gradients that this
    leaves."""
    discriminator = job.start(job.net(2), accumulation=accumulation)
    generator = job.start(job.net(3, Generator), accumulation=1)

    def judged(x, value):
        return (discriminator(x).mean(1) - value).pow(2).mean()

    results = {}
    for step in range(3):
        x, z = job.batch()
        discriminator.zero_grad()
        discriminator.backward(judged(x, 1))
        if accumulation == 2:
            discriminator.step()
        discriminator.backward(judged(generator(z).detach(), 0))
        discriminator.step()
        generator.zero_grad()
        generator.backward(judged(generator(z), 1))
        generator.step()
    discriminator.zero_grad()
    results = {f"d.{name}": value for name, value in job.values(discriminator).items()}
    results.update({f"g.{name}": value for name, value in job.values(generator).items()})
    return results


@idiom("a GAN of two engines")
def gan(job):
    return adversaries(job, 1)


@idiom("a GAN of two engines, with accumulation in one of them", accumulation=1)
def gan_accumulated(job):
    return adversaries(job, 2)


class Modalities(nn.Module):
    """Uses its vision part only for batches with images, between other parts that were declared before it."""

    def __init__(self):
        super().__init__()
        self.text = nn.ModuleList([nn.Linear(9, 18), nn.Linear(18, 18)])
        self.head = nn.Linear(18, 5)
        self.vision = nn.ModuleList([nn.Linear(9, 18), nn.Linear(18, 18)])

    def forward(self, x, image=None):
        hidden = self.text[0](x)
        if image is not None:
            hidden = hidden + self.vision[1](self.vision[0](image).relu())
        return self.head(self.text[1](hidden.relu()))


def mixed(job, has_image):
    net = job.net(4, Modalities)
    engine = job.start(net, torch.optim.SGD(net.parameters(), lr=0.1))
    for step in range(5):
        x, y = job.batch()
        image = x.flip(1) if has_image(step) else None
        engine.backward(nn.functional.mse_loss(engine(x, image), y))
        engine.step()
    return job.values(engine)


@idiom("units that come for the first time in a later pass")
def late_units(job):
    return mixed(job, lambda step: step in (1, 3, 4))


@idiom("units that come for the first time in a later pass, on one rank")
def late_units_on_one_rank(job):
    return mixed(job, lambda step: step > 0 and (step + job.rank) % 3 == 1)


@idiom("gradients read between backward and step", accumulation=2)
def gradient_before_step(job):
    engine = job.start(job.net())
    results = {}
    for micro in range(4):
        engine.backward(job.loss(engine))
        if micro % 2:
            for name, parameter in engine.module.named_parameters():
                results[f"{micro}.{name}"] = engine.read(parameter, "grad")
        engine.step()
    return results


@idiom("gradients read between backward and step, under fp16", dtype="fp16", tolerance=2e-3,
       config={"fp16": {"enabled": True, "loss_scale": 1024}})
def gradient_before_step_fp16(job):
    engine = job.start(job.net())
    engine.backward(job.loss(engine))
    return {name: engine.read(parameter, "grad") for name, parameter in engine.module.named_parameters()}


@idiom("weights in the loss outside of forward")
def penalty(job):
    engine = job.start(job.net())
    for _ in range(3):
        loss = job.loss(engine) + 1e-2 * sum(p.pow(2).sum() for p in engine.module.head.parameters())
        engine.backward(loss)
        engine.step()
    return job.values(engine)


@idiom("clipping by hand", refused={stage: "gradient_clipping" for stage in (0, 1, 2, 3, "SHARD_GRAD_OP")})
def clipped_by_hand(job):
    engine = job.start(job.net())
    engine.backward(job.loss(engine))
    torch.nn.utils.clip_grad_norm_(engine.module.parameters(), 0.1)
    engine.step()
    return job.values(engine)


@idiom("a refused call leaves the engine usable")
def usable_after_refusal(job):
    engine = job.start(job.net())
    job.micro_steps(engine)
    if not job.plain:
        import zerocore
        for refused in (lambda: engine.read(engine.module.head.weight, "nothing"), engine.step):
            try:
                refused()
            except zerocore.UsageError:
                continue
            raise AssertionError("nothing was refused")
    job.micro_steps(engine)
    return job.values(engine)


@idiom("three engines in one loss")
def three_engines(job):
    engines = [job.start(job.net(seed), accumulation=1) for seed in (2, 3, 4)]
    results = {}
    for step in range(3):
        x, y = job.batch()
        first, second, third = (engine(x) for engine in engines)
        loss = nn.functional.mse_loss(first + second * third.sigmoid(), y)
        engines[0].backward(loss)
        for engine in engines:
            engine.step()
    for index, engine in enumerate(engines):
        results.update({f"{index}.{name}": value for name, value in job.values(engine).items()})
    return results


@idiom("an actor and a critic, whose losses have a term in common")
def actor_and_critic(job):
    actor, critic = job.start(job.net(2)), job.start(job.net(3))
    for step in range(3):
        x, y = job.batch()
        action, value = actor(x), critic(x)
        advantage = (y - value.detach()).mean(1, keepdim=True)
        actor.backward(-(advantage * action).mean() + action.pow(2).mean())
        actor.step()
        critic.backward(nn.functional.mse_loss(value, y))
        critic.step()
    return {**{f"a.{n}": v for n, v in job.values(actor).items()}, **{f"c.{n}": v for n, v in job.values(critic).items()}}


@idiom("a penalty on the gradient of the input, with create_graph")
def gradient_penalty(job):
    engine = job.start(job.net())
    for _ in range(2):
        x, y = job.batch()
        x.requires_grad_()
        prediction = engine(x)
        slope, = torch.autograd.grad(prediction.sum(), x, create_graph=True)
        engine.backward(nn.functional.mse_loss(prediction, y) + slope.pow(2).mean())
        engine.step()
    return job.values(engine)


@idiom("the gradient of the input, next to training")
def input_gradient(job):
    engine = job.start(job.net())
    slopes = []
    for _ in range(2):
        x, y = job.batch()
        x.requires_grad_()
        prediction = engine(x)
        slope, = torch.autograd.grad(prediction.sum(), x, retain_graph=True)
        slopes.append(slope.sum().item() if job.rank == 0 else 0.0)
        engine.backward(nn.functional.mse_loss(prediction, y))
        engine.step()
    return {"slopes": slopes, **job.values(engine)}


@idiom("an adversarial input: a backward to the input alone, then training on it", accumulation=2)
def adversarial_input(job):
    engine = job.start(job.net())
    for _ in range(4):
        x, y = job.batch()
        x.requires_grad_()
        slope, = torch.autograd.grad(nn.functional.mse_loss(engine(x), y), x)
        engine.backward(nn.functional.mse_loss(engine((x + 0.1 * slope.sign()).detach()), y))
        engine.step()
    return job.values(engine)


@idiom("torch.autocast around the forward pass", dtype="fp32", tolerance=1e-5)
def autocast(job):
    engine = job.start(job.net())
    for _ in range(2):
        x, y = job.batch()
        with torch.autocast("cpu", torch.bfloat16):
            prediction = engine(x)
        engine.backward(nn.functional.mse_loss(prediction.float(), y))
        engine.step()
    return job.values(engine)


@idiom("a penalty on weights that are gathered between forward and backward")
def gathered_penalty(job):
    engine = job.start(job.net())
    for _ in range(3):
        loss = job.loss(engine)
        with gathered(job, engine.module.head.parameters()):
            penalty = 1e-2 * sum(p.pow(2).sum() for p in engine.module.head.parameters())
        engine.backward(loss + penalty)
        engine.step()
    return job.values(engine)


def gathered(job, parameters, modifier_rank=None):
    if job.plain:
        return contextlib.nullcontext()
    import zerocore
    return zerocore.zero.GatheredParameters(list(parameters), modifier_rank)


@idiom("a penalty on weights before the forward pass", refused_sharded="sharded at rest")
def penalty_before(job):
    engine = job.start(job.net())
    for _ in range(3):
        penalty = 1e-2 * sum(p.pow(2).sum() for p in engine.module.head.parameters())
        engine.backward(job.loss(engine) + penalty)
        engine.step()
    return job.values(engine)


@idiom("the model's own forward, and parts of it, called without the engine")
def parts_called(job):
    net = job.net(kind=type("Patched", (Net,), {}))
    engine = job.start(net)
    for step in range(4):
        if step == 2:
            type(net).forward = lambda self, x: Net.forward(self, 2 * x)
        x, y = job.batch()
        hidden = net.inp(x) if step == 3 else None  # as in a method that does not call forward()
        for block in net.blocks if step == 3 else ():
            hidden = block(hidden)
        engine.backward(nn.functional.mse_loss(net.head(hidden) if step == 3 else engine.module(x), y))
        engine.step()
    return job.values(engine)


@idiom("clip_grad_value_() by hand", refused="gradient_clipping")
def clipped_values_by_hand(job):
    engine = job.start(job.net())
    engine.backward(job.loss(engine))
    torch.nn.utils.clip_grad_value_(engine.module.parameters(), 0.1)
    engine.step()
    return job.values(engine)


@idiom("a gradient that the program sets", refused="was set by the program")
def set_gradient(job):
    engine = job.start(job.net())
    engine.backward(job.loss(engine))
    engine.module.head.weight.grad = torch.zeros(5, 18)
    engine.step()
    return job.values(engine)


@idiom("gradients of weights by torch.autograd.grad(): those of this rank, which train nothing")
def gradients_by_grad(job):
    engine = job.start(job.net())
    results = {}
    for step in range(2):
        loss = job.loss(engine)
        gradients = torch.autograd.grad(loss, list(engine.module.parameters()), retain_graph=True)
        results.update({f"{step}.{index}": gradient for index, gradient in enumerate(gradients)})
        engine.backward(loss)
        engine.step()
    return {**results, **job.values(engine)}


@idiom("reads, digests and gathered values between the first forward and its backward")
def reads_in_first_pass(job):
    engine = job.start(job.net())
    for _ in range(2):
        first = job.loss(engine)
        if not job.plain:
            engine.digest()
            engine.read(engine.module.head.weight)
            with gathered(job, engine.module.parameters()):
                pass
        engine.backward(first + job.loss(engine) + 1e-2 * engine.module.head.weight.pow(2).sum())
        engine.step()
    return job.values(engine)


def refusing(name, text, call):
    """Passes an object that is no loss to engine.backward(); the engine stays usable."""
    def script(job):
        engine = job.start(job.net())
        try:
            call(engine, engine(job.batch()[0]))
        except RuntimeError as error:
            job.micro_steps(engine)
            raise error
    script.__name__ = f"refused_{name}"
    idiom(f"a loss that is none: {name.replace('_', ' ')}", against_torch=False, refused=text)(script)


refusing("vector", "has the shape (2,)", lambda engine, prediction: engine.backward(prediction.pow(2).mean(1)))
refusing("tuple", "the loss is a tuple", lambda engine, prediction: engine.backward((prediction.mean(),)))
refusing("without_graph", "does not depend on anything", lambda engine, prediction: engine.backward(prediction.detach().mean()))


@idiom("engine.backward() in one micro step and loss.backward() in another", accumulation=2, against_torch=False,
       refused="call one of them in all")
def mixed_backwards(job):
    engine = job.start(job.net())
    engine.backward(job.loss(engine))
    engine.step()
    job.loss(engine).backward()
    engine.step()


@idiom("loss.backward() by hand, with accumulation: the engine divides", accumulation=2)
def accumulated_by_hand(job):
    engine = job.start(job.net())
    for _ in range(4):
        loss = job.loss(engine)
        (loss / 2 if job.plain else loss).backward()
        engine.step()
    return job.values(engine)


@idiom("engine.scale(loss).backward(), with accumulation", accumulation=2)
def accumulated_by_scale(job):
    engine = job.start(job.net())
    for _ in range(4):
        loss = job.loss(engine)
        (loss / 2 if job.plain else engine.scale(loss)).backward()
        engine.step()
    return job.values(engine)


@idiom("engine.backward(loss, scale_wrt_gas=False), of a loss that is divided already", accumulation=2)
def divided_already(job):
    engine = job.start(job.net())
    for _ in range(4):
        engine.backward(job.loss(engine) / 2, scale_wrt_gas=False)
        engine.step()
    return job.values(engine)


@idiom("a model that is given to initialize() again, and its first engine", against_torch=False,
       refused="has another engine since")
def given_again(job):
    net = job.net()
    first = job.start(net)
    job.micro_steps(first)
    second = job.start(net)
    job.micro_steps(second)
    assert second.global_steps == 1
    job.micro_steps(first)


@idiom("a model that is given to initialize() again, and its second engine")
def goes_on_with_second(job):
    net = job.net()
    first = job.start(net)
    job.micro_steps(first)
    second = job.start(net)
    job.micro_steps(second, 2)
    return job.values(second)


@idiom("two models with an encoder in common, in two engines", against_torch=False, refused="one engine trains it")
def common_encoder(job):
    first, second = job.net(1), job.net(2)
    second.inp = first.inp
    job.start(first)
    job.start(second)


@idiom("a model under DistributedDataParallel", against_torch=False, refused="give the module inside of it")
def under_ddp(job):
    job.start(nn.parallel.DistributedDataParallel(job.net()))


@idiom("a discriminator that is frozen while its generator steps")
def frozen_discriminator(job):
    discriminator, generator = job.start(job.net(2)), job.start(job.net(3, Generator))

    def judged(x, value):
        return (discriminator(x).mean(1) - value).pow(2).mean()

    for step in range(3):
        x, z = job.batch()
        discriminator.module.requires_grad_(True)
        discriminator.backward(judged(x, 1) + judged(generator(z).detach(), 0))
        discriminator.step()
        discriminator.module.requires_grad_(False)
        generator.backward(judged(generator(z), 1))
        generator.step()
    results = {f"d.{name}": value for name, value in job.values(discriminator).items()}
    results.update({f"g.{name}": value for name, value in job.values(generator).items()})
    return results


@idiom("a model that is frozen for its evaluation alone")
def frozen_for_evaluation(job):
    engine = job.start(job.net())
    outputs = {}
    for step in range(2):
        job.micro_steps(engine)
        engine.module.requires_grad_(False)
        outputs[f"output {step}"] = job.evaluate(engine)
        engine.train()
        engine.module.requires_grad_(True)
    return {**outputs, **job.values(engine)}
