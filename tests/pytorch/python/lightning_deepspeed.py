"""Lightning's Trainer with its DeepSpeedStrategy: lightning_deepspeed.py STAGE FOLDER. Nothing in it refers to
ZeroCore; the losses equal those of a loop of plain torch over the batches of all ranks."""

import os
import sys

import lightning
import torch
from lightning.pytorch.strategies import DeepSpeedStrategy

ROWS = torch.randn(32, 16, generator=torch.Generator().manual_seed(1))


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.blocks = torch.nn.ModuleList([torch.nn.Linear(16, 16) for _ in range(3)])
        self.seen = []

    def forward(self, x):
        for block in self.blocks:
            x = x + torch.tanh(block(x))
        return x

    def training_step(self, batch, index):
        loss = (self(batch) - 1).pow(2).mean()
        self.seen.append(self.trainer.strategy.reduce(loss.detach(), reduce_op="mean").item())
        return loss

    def validation_step(self, batch, index):
        self.log("validation", (self(batch) - 1).pow(2).mean(), sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [{"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2), "interval": "step"}]


def plain():
    net = Net()
    (optimizer,), (scheduler,) = net.configure_optimizers()
    seen = []
    for index, batch in enumerate([*ROWS.split(8)] * 2):
        loss = (net(batch) - 1).pow(2).mean()
        (loss / 2).backward()
        seen.append(loss.item())
        if index % 2:
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
            scheduler["scheduler"].step()
    with torch.no_grad():
        return seen, torch.stack([(net(batch) - 1).pow(2).mean() for batch in ROWS.split(8)]).mean().item()


def main(stage, folder):
    own = ROWS.view(4, 2, 4, 16)[:, int(os.environ["RANK"])].reshape(16, 16)
    loader = torch.utils.data.DataLoader(own, batch_size=4)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy=DeepSpeedStrategy(stage=stage), max_epochs=2, accumulate_grad_batches=2,
        gradient_clip_val=0.5, use_distributed_sampler=False, logger=False, enable_progress_bar=False,
        enable_checkpointing=False, default_root_dir=folder)
    net = Net()
    trainer.fit(net, loader, loader)
    trainer.save_checkpoint(os.path.join(folder, "last"))
    seen, validation = plain()
    assert len(seen) == len(net.seen) == 8
    assert max(abs(a - b) for a, b in zip(net.seen, seen)) < 1e-5, (net.seen, seen)
    assert abs(trainer.callback_metrics["validation"].item() - validation) < 1e-5, (trainer.callback_metrics, validation)
    print("Finished Training")


main(int(sys.argv[1]), sys.argv[2])
