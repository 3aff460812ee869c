"""The Trainer of transformers under zero_core.rank_independent: its samples, losses and number of micro-batches do not
depend on the number of ranks."""

import inspect
import types

import torch

from .. import _native
from ..global_sampler import GlobalSampler
from ..micro_batches import Share
from ..ranks import ranks
from ..wrapping import replaces


def _share_of(config):
    """Returns this rank's Share by a complete config, or None without rank_independent."""
    core = config.get("zero_core") or {}
    if not core.get("rank_independent"):
        return None
    if core.get("recompute_every"):
        raise _native.ConfigError(
            f"zero_core.recompute_every is {core['recompute_every']!r}: the Trainer has as many micro-batches in each step, and "
            "so cannot repeat those of other ranks in some; leave the key out, or write the loop yourself")
    total, size = config.get("train_batch_size"), config.get("train_micro_batch_size_per_gpu")
    if not isinstance(total, int) or not isinstance(size, int) or size < 1 or total % size or total < size * ranks().size:
        raise _native.ConfigError(
            f"train_batch_size is {total!r} and train_micro_batch_size_per_gpu {size!r}; zero_core.rank_independent needs "
            f"numbers of samples, the first a multiple of the second, with a micro-batch for each of the {ranks().size} ranks")
    return Share(size, total // size, ranks().rank, ranks().size)


def adapt_config(module):
    """Sets gradient_accumulation_steps of the arguments to the number of micro-batches of this rank."""

    @replaces(module.HfTrainerDeepSpeedConfig, "trainer_config_process")
    def with_own_accumulation(self, process, args, *more, **kwargs):
        config = self.config
        if config.get("train_micro_batch_size_per_gpu") in (None, "auto"):
            own = {**config, "train_micro_batch_size_per_gpu": args.per_device_train_batch_size}
        else:
            own = config
        share = _share_of(own)
        if share is None:
            return process(self, args, *more, **kwargs)
        if args.include_num_input_tokens_seen != "no" and share.count % share.ranks:
            raise _native.ConfigError(
                f"include_num_input_tokens_seen counts over all ranks in each micro-batch, and {share.count} micro-batches "
                f"are no multiple of {share.ranks} ranks: leave it out")
        args.gradient_accumulation_steps = share.own
        total = config.pop("train_batch_size")
        config["gradient_accumulation_steps"] = "auto"
        process(self, args, *more, **kwargs)
        # The reader compares it with the largest number of micro-batches of a rank.
        config.update(train_batch_size=total, gradient_accumulation_steps=-(-share.count // share.ranks))


def _share(trainer):
    plugin = getattr(trainer.accelerator.state, "deepspeed_plugin", None)
    return None if plugin is None else _share_of(plugin.deepspeed_config)


class _Samples(GlobalSampler):
    """The order of the Trainer's samples. The Trainer names the epoch, and skips the micro-batches of a resumed one."""

    def __init__(self, dataset, seed, share):
        super().__init__(dataset, seed)
        self._at_start = types.SimpleNamespace(
            share=share, steps_done=0, index=0, numbers=lambda step: [share.number(index) for index in range(share.own)],
            count_in=lambda first, steps: steps * share.own)

    def _micro_batches(self):
        return self._at_start


def _replaces(cls, name):
    """As replaces(), for a Trainer's method; without rank_independent the class's own method is called in its place."""
    def decorate(function):
        @replaces(cls, name)
        def method(self, own, *args, **kwargs):
            share = _share(self)
            return own(self, *args, **kwargs) if share is None else function(self, own, share, *args, **kwargs)
        return method
    return decorate


def adapt_trainer(module):
    trainer = module.Trainer

    @_replaces(trainer, "_get_train_sampler")
    def samples(self, own, share, train_dataset=None):
        dataset = self.train_dataset if train_dataset is None else train_dataset
        if self.args.train_sampling_strategy != "random":
            raise _native.ConfigError(f"train_sampling_strategy is {self.args.train_sampling_strategy!r}, and with "
                                      "zero_core.rank_independent the order is GlobalSampler's: leave it out")
        return _Samples(dataset, self.args.seed if self.args.data_seed is None else self.args.data_seed, share)

    @_replaces(trainer, "_get_dataloader")
    def loader(self, own, share, *args, **kwargs):
        bound = inspect.signature(own).bind(self, *args, **kwargs).arguments
        if bound.get("is_training") and isinstance(bound["dataset"], torch.utils.data.IterableDataset):
            raise _native.ConfigError("the train_dataset is an IterableDataset, which has no numbered samples, and "
                                      "zero_core.rank_independent needs them: give a dataset with len() and indices")
        loader = own(self, *args, **kwargs)
        # The sampler has this rank's samples alone, so accelerate need not divide them.
        shards = getattr(loader, "batch_sampler", None)
        if isinstance(getattr(getattr(shards, "batch_sampler", None), "sampler", None), _Samples):
            shards.num_processes, shards.process_index = 1, 0
        return loader

    @_replaces(trainer, "_run_epoch")
    def run_epoch(self, own, share, *args, **kwargs):
        bound = inspect.signature(own).bind(self, *args, **kwargs).arguments
        sampler = bound["train_dataloader"].batch_sampler
        while not isinstance(sampler, _Samples):
            sampler = getattr(sampler, "sampler", None) or sampler.batch_sampler
        sampler.set_epoch(bound["epoch"])
        return own(self, *args, **kwargs)

    @_replaces(trainer, "_get_num_items_in_batch")
    def no_number_of_items(self, own, share, *args, **kwargs):
        return None  # each loss is a mean over its own micro-batch

    @_replaces(trainer, "training_step")
    def training_step(self, own, share, *args, **kwargs):
        self.loss_is_scaled_for_ga = True  # the engine divides by the number of micro-batches
        return own(self, *args, **kwargs) * (share.ranks / share.count)  # for the log, a mean over ranks
