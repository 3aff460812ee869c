"""A loop with accelerate: accelerate_deepspeed.py STAGE. Prepared objects train as in plain torch."""

import sys

import torch
from accelerate import Accelerator
from accelerate.utils import DeepSpeedPlugin
from transformers import get_scheduler

from models import VOCABULARY, TiedTransformer


def trained(prepare, backward):
    torch.manual_seed(3)
    model = TiedTransformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = get_scheduler("cosine", optimizer, num_warmup_steps=2, num_training_steps=8)
    generator = torch.Generator().manual_seed(5)
    batches = [torch.randint(0, VOCABULARY, (2, 6), generator=generator) for _ in range(6)]
    model, optimizer, loader, scheduler = prepare(
        model, optimizer, torch.utils.data.DataLoader(batches, batch_size=None), scheduler)
    rates = []
    for batch in loader:
        rates.append(scheduler.get_last_lr()[0])
        loss = model(batch)
        backward(loss)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    return rates, model, loss.item()


def in_parts(accelerator):
    """The engine that trains is the accelerator's, also after a model without an optimizer, which may come later."""
    accelerator.free_memory()
    refuses("prepare_model() does not: call model, optimizer", lambda: accelerator.backward(torch.ones(1, requires_grad=True).sum()))
    reference = accelerator.prepare(TiedTransformer())
    model = TiedTransformer()
    engine, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    moves(accelerator, engine, optimizer)
    frozen = reference.module.blocks[0].up.weight.requires_grad_(False)
    moves(accelerator, reference, accelerator.prepare(torch.optim.SGD(reference.parameters(), lr=0.1)))
    assert not reference.trains(frozen) and reference.trains(reference.module.blocks[0].down.weight)
    evaluates = accelerator.prepare(TiedTransformer())
    assert [each.requires_grad for each in evaluates.parameters()] == [each.requires_grad for each in TiedTransformer().parameters()]
    assert not evaluates(torch.ones(2, 6, dtype=torch.int64)).requires_grad
    assert not any(parameter.requires_grad for parameter in evaluates.parameters())


def moves(accelerator, engine, optimizer):
    before = engine.digest()
    accelerator.backward(engine(torch.ones(2, 6, dtype=torch.int64)))
    optimizer.step()
    assert engine.digest() != before


def refuses(part, call):
    try:
        call()
    except Exception as error:  # noqa: BLE001: the library's errors are not imported here
        assert part in str(error), error
    else:
        raise AssertionError(f"nothing refused it: {part}")


def main(stage):
    accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config={
        "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1, "gradient_clipping": 0.0,
        "zero_optimization": {"stage": stage}}))
    rates, engine, loss = trained(accelerator.prepare, accelerator.backward)
    plain_rates, plain, plain_loss = trained(lambda *objects: objects, lambda loss: loss.backward())
    assert rates == plain_rates and rates[0] == 0 and rates[2] == 1e-2, (rates, plain_rates)
    assert abs(loss - plain_loss) <= 1e-5 * abs(plain_loss), (loss, plain_loss)
    for name, parameter in plain.named_parameters():
        difference = (engine.read(engine.module.get_parameter(name)) - parameter).abs().max().item()
        assert difference < 1e-5, f"{name} differs by {difference}"
    in_parts(accelerator)
    print("Finished Training")


main(int(sys.argv[1]))
