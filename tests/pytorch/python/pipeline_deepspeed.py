"""A script like DeepSpeed's pipeline tutorial (AlexNet on CIFAR-10), smaller and on generated images. Nothing in it refers to
ZeroCore."""

import argparse

import deepspeed
import torch
import torch.nn as nn
from deepspeed.pipe import PipelineModule
from deepspeed.utils import RepeatingLoader


class AlexNet(nn.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, kernel_size=3, stride=2, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(kernel_size=2),
            nn.Conv2d(8, 12, kernel_size=3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(12, 8, kernel_size=3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(kernel_size=2))
        self.avgpool = nn.AdaptiveAvgPool2d((2, 2))
        self.classifier = nn.Sequential(
            nn.Dropout(), nn.Linear(8 * 2 * 2, 64), nn.ReLU(inplace=True),
            nn.Dropout(), nn.Linear(64, 32), nn.ReLU(inplace=True), nn.Linear(32, num_classes))


def join_layers(vision_model):
    return [*vision_model.features, vision_model.avgpool, lambda x: torch.flatten(x, 1), *vision_model.classifier]


def get_args():
    parser = argparse.ArgumentParser(description="CIFAR")
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("-s", "--steps", type=int, default=3)
    parser.add_argument("-p", "--pipeline-parallel-size", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1138)
    parser = deepspeed.add_config_arguments(parser)
    return parser.parse_args()


def trainset():
    numbers = torch.Generator().manual_seed(1)
    images = torch.randn(20, 3, 32, 32, generator=numbers)
    return torch.utils.data.TensorDataset(images, images.mean((1, 2, 3)).mul(40).long().remainder(10))


def train_pipe(args):
    torch.manual_seed(args.seed)
    deepspeed.runtime.utils.set_random_seed(args.seed)
    net = AlexNet()
    net = PipelineModule(layers=join_layers(net), loss_fn=torch.nn.CrossEntropyLoss(),
                         num_stages=args.pipeline_parallel_size, partition_method="parameters", activation_checkpoint_interval=0)
    config = {"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "steps_per_print": 2000,
              "optimizer": {"type": "Adam", "params": {"lr": 0.001, "betas": [0.9, 0.999], "eps": 1e-8}},
              "wall_clock_breakdown": False}
    engine, _, loader, _ = deepspeed.initialize(args=args, model=net, model_parameters=[p for p in net.parameters() if p.requires_grad],
                                                training_data=trainset(), config=config)
    assert isinstance(loader, RepeatingLoader) and isinstance(engine, deepspeed.PipelineEngine)
    assert engine.grid.get_pipe_parallel_world_size() == args.pipeline_parallel_size
    for _ in range(args.steps):
        loss = engine.train_batch()
        if deepspeed.comm.get_rank() == 0:
            print("loss", loss.item().hex(), engine.get_global_grad_norm().hex())


if __name__ == "__main__":
    args = get_args()
    deepspeed.init_distributed(dist_backend="gloo")
    train_pipe(args)
