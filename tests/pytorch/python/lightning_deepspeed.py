"""Lightning's Trainer and Fabric with their DeepSpeedStrategy: lightning_deepspeed.py FOLDER STAGE... Nothing in it refers
to ZeroCore; the losses, and the norms before clipping, equal those of a loop of plain torch over the batches of all ranks."""

import os
import sys

import lightning
import torch
from lightning.fabric.strategies import DeepSpeedStrategy as FabricStrategy
from lightning.pytorch.callbacks import LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import DeepSpeedStrategy

ROWS = torch.randn(32, 16, generator=torch.Generator().manual_seed(1))


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.blocks = torch.nn.ModuleList([torch.nn.Linear(16, 16) for _ in range(3)])
        self.head = torch.nn.Linear(16, 4)  # outside of forward()
        self.seen, self.norms = [], []

    def forward(self, x):
        for block in self.blocks:
            x = x + torch.tanh(block(x))
        return x

    def loss(self, batch):
        return (self.head(self(batch)) - 1).pow(2).mean()

    def training_step(self, batch, index):
        loss = self.loss(batch)
        self.seen.append(self.trainer.strategy.reduce(loss.detach(), reduce_op="mean").item())
        return loss

    def on_train_batch_end(self, outputs, batch, index):
        if index % 2:
            self.norms.append(float(self.trainer.model.get_global_grad_norm()))

    def validation_step(self, batch, index):
        self.log("validation", self.loss(batch), sync_dist=True)

    def test_step(self, batch, index):
        self.log("test", self.loss(batch), sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(filter(lambda parameter: parameter.requires_grad, self.parameters()), lr=0.1)
        return [optimizer], [{"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2), "interval": "step"}]


class Manual(Net):
    """Steps by itself, inside of training_step()."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, index):
        loss = self.loss(batch)
        self.manual_backward(loss)
        self.optimizers().step()
        self.optimizers().zero_grad()
        self.seen.append(self.trainer.strategy.reduce(loss.detach(), reduce_op="mean").item())


class Clipping(Net):
    """Clips by a norm of its own."""

    def configure_gradient_clipping(self, optimizer, gradient_clip_val=None, gradient_clip_algorithm=None):
        self.clip_gradients(optimizer, gradient_clip_val=0.05, gradient_clip_algorithm="norm")

    def on_train_batch_end(self, outputs, batch, index):
        """Norms are compared elsewhere."""


def evaluated(net):
    with torch.no_grad():
        return torch.stack([net.loss(batch) for batch in ROWS.split(8)]).mean().item()


def trained(net, accumulation, clip):
    """Trains the net for two epochs; returns its losses and norms."""
    (optimizer,), (scheduler,) = net.configure_optimizers()
    seen, norms = [], []
    for index, batch in enumerate([*ROWS.split(8)] * 2):
        loss = net.loss(batch)
        (loss / accumulation).backward()
        seen.append(loss.item())
        if (index % 4 + 1) % accumulation == 0 or accumulation == 3 and index % 4 == 3:
            norms.append(torch.nn.utils.clip_grad_norm_(net.parameters(), clip).item())
            optimizer.step()
            optimizer.zero_grad()
            if accumulation > 1:
                scheduler["scheduler"].step()
    return seen, norms


def close(found, right):
    assert len(found) == len(right) and max(abs(a - b) for a, b in zip(found, right)) < 1e-5, (found, right)


def trainer_of(stage, folder, **more):
    return lightning.Trainer(accelerator="cpu", devices=2, strategy=DeepSpeedStrategy(stage=stage), max_epochs=2,
                             use_distributed_sampler=False, enable_progress_bar=False, enable_checkpointing=False,
                             enable_model_summary=False, default_root_dir=folder, **more)


def fits_and_evaluates(stage, folder, loader):
    """In any order, by one Trainer: each call makes an engine of the same model."""
    monitor = LearningRateMonitor("step")
    trainer = trainer_of(stage, folder, accumulate_grad_batches=2, gradient_clip_val=0.5, callbacks=[monitor],
                         logger=CSVLogger(folder), log_every_n_steps=1)
    net, plain = Net(), Net()

    def check(found):
        close([found[0][name] for name in found[0]], [evaluated(plain)])

    check(trainer.test(net, loader, verbose=False))
    for epochs in (2, 4):
        net.seen.clear()
        net.norms.clear()
        trainer.fit_loop.max_epochs = epochs
        trainer.fit(net, loader, loader)
        seen, norms = trained(plain, 2, 0.5)
        close(net.seen, seen)
        close(net.norms, norms)
        assert abs(trainer.callback_metrics["validation"].item() - evaluated(plain)) < 1e-5
        check(trainer.validate(net, loader, verbose=False))
        check(trainer.test(net, loader, verbose=False))
    assert list(monitor.lrs) == ["lr-SGD"], monitor.lrs
    trainer.save_checkpoint(os.path.join(folder, f"last{stage}"))


def steps_by_itself(stage, folder, loader):
    net, plain = Manual(), Manual()
    trainer_of(stage, folder, logger=False).fit(net, loader)
    close(net.seen, trained(plain, 1, float("inf"))[0])


def clips_and_ends_epochs(stage, folder, loader):
    """The last batch of an epoch ends a step, of three batches otherwise."""
    net, plain = Clipping(), Clipping()
    trainer = trainer_of(stage, folder, accumulate_grad_batches=3, logger=False)
    trainer.fit(net, loader)
    close(net.seen, trained(plain, 3, 0.05)[0])
    assert trainer.global_step == 4, trainer.global_step


def in_fabric(stage, batches):
    fabric = lightning.Fabric(accelerator="cpu", devices=2, strategy=FabricStrategy(stage=stage))
    fabric.launch()
    plain, made = Net(), Net()
    net, optimizer = fabric.setup(made, made.configure_optimizers()[0][0])
    net.mark_forward_method("loss")
    seen = []
    for batch in [*batches] * 2:
        loss = net.loss(batch)
        fabric.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        seen.append(fabric.all_reduce(loss.detach(), reduce_op="mean").item())
    close(seen, trained(plain, 1, 1.0)[0])  # the default of "gradient_clipping"


def main(folder, *stages):
    own = ROWS.view(4, 2, 4, 16)[:, int(os.environ["RANK"])].reshape(16, 16)
    loader = torch.utils.data.DataLoader(own, batch_size=4)
    for stage in map(int, stages):
        fits_and_evaluates(stage, folder, loader)
        steps_by_itself(stage, folder, loader)
        clips_and_ends_epochs(stage, folder, loader)
        in_fabric(stage, own.split(4))
    print("Finished Training")


main(*sys.argv[1:])
