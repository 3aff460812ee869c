"""The engine of a model in stages, with the interface of DeepSpeed's PipelineEngine."""

import torch

from .. import _native
from ..engine import Engine
from ..evaluation import Evaluation
from ..loaders import RepeatingLoader
from ..optimizers import guard_others
from .tasks import Batches, StageTasks

_WHOLE = "no rank has the whole model: save a checkpoint, of which `zero checkpoint export` makes a model"
_BY_TASKS = "only train_batch() and eval_batch() run a pipeline, whose stages work on several micro-batches at a time"
_REFUSED = {
    **dict.fromkeys(("forward", "backward", "step", "scale", "zero_grad", "no_sync", "coalesce_grad_reduction",
                     "set_gradient_accumulation_boundary", "allreduce_gradients", "compile", "seed_of_micro_batch"), _BY_TASKS),
    **dict.fromkeys(("read", "write", "load_weights", "initialize_rest", "save_16bit_model", "save_fp16_model", "export_model",
                     "stream_weights", "stream_changes", "module_state_dict", "load_module_state_dict", "_zero3_consolidated_16bit_state_dict"), _WHOLE),
    **dict.fromkeys(("set_train_batch_size", "set_train_micro_batch_size"), "a pipeline is planned for the config's batch"),
    "copy_to_peers": "zero_core.peer_copies does not go with pipelines: save checkpoints",
}


class Grid:
    """The place of this rank in the grid of stages and data ranks, by DeepSpeed's names. The data ranks of a stage are
    neighbors. pp_group and dp_group are the global ranks of this rank's pipeline and stage."""

    def __init__(self, job):
        self.global_rank, self.world_size, self.stage_id = job.rank, job.size, job.stage
        self.is_first_stage, self.is_last_stage = job.stage == 0, job.stage == job.stages - 1
        self.stage_to_global = lambda stage_id, data=job.data_rank: stage_id * job.data_size + data
        self.pp_group = [self.stage_to_global(stage) for stage in range(job.stages)]
        self.dp_group = [self.stage_to_global(job.stage, data) for data in range(job.data_size)]
        self.pipe_parallel_size, self.data_parallel_size, self.model_parallel_size = job.stages, job.data_size, 1
        self.get_global_rank = lambda: job.rank
        self.get_stage_id = self.get_pipe_parallel_rank = lambda: job.stage
        self.get_pipe_parallel_world_size = lambda: job.stages
        self.get_data_parallel_rank = self.get_data_parallel_id = lambda: job.data_rank
        self.get_data_parallel_world_size = lambda: job.data_size
        self.get_model_parallel_rank = self.get_slice_parallel_rank = lambda: 0
        self.get_model_parallel_world_size = self.get_slice_parallel_world_size = lambda: 1

    def __getattr__(self, name):
        advice = ("; torch.distributed.new_group(ranks) of grid.pp_group or grid.dp_group makes a group" if "group" in name else
                  "; it has " + ", ".join(sorted(each for each in vars(self))))
        raise AttributeError(f"engine.grid has no {name}{advice}")


class PipelineEngine(Engine):
    """The result of zerocore.initialize() for a PipelineModule, and with pipeline.stages for a decoder of transformers. A
    failure inside of a step ends the engine."""

    def __init__(self, module, native, ranks, settings, config_source, optimizer):
        super().__init__(module, native, ranks, settings, config_source, optimizer, {})
        self._names = {id(parameter): name for name, (parameter, _) in module.tensors.items()}
        self.grid = self.mpu = Grid(ranks)
        self.stage_id, self.num_stages = module.stage, module.stage_count
        self.prev_stage, self.next_stage = self.stage_id - 1, self.stage_id + 1
        self.is_pipe_parallel, self.is_data_parallel, self.is_model_parallel = self.num_stages > 1, ranks.data_size > 1, False
        self.batch_fn = self.data_iterator = None
        self.told_of_samples = False
        self._seed = _of_rank_0(ranks, torch.initial_seed() % 2**63)

    def _follow_passes(self, native, sharded):
        """Its tasks open the units, and evaluations end with eval_batch()."""
        self._evaluation = Evaluation(native, self._ranks, type(self.module).__name__, False)

    def _rests_sharded(self):
        return self.zero_optimization_stage() == 3

    def _parameter_count(self):
        return self.module.parameter_count

    # Data.

    def is_first_stage(self):
        """Returns whether this rank's stage has the first layer, which is given the inputs."""
        return self.stage_id == 0

    def is_last_stage(self):
        """Returns whether this rank's stage has the last layer, which is given the labels."""
        return self.stage_id == self.num_stages - 1

    def set_dataiterator(self, iterator):
        """Sets the iterator of micro-batches for train_batch() without an argument, as an argument does."""
        self.data_iterator = iterator

    def set_dataloader(self, loader):
        """Sets a loader of micro-batches for train_batch() without an argument."""
        self.training_dataloader, self.data_iterator = loader, iter(loader)

    def set_batch_fn(self, function):
        """Sets a function of a micro-batch that returns the one to use."""
        self.batch_fn = function

    def reset_activation_shape(self):
        """Does nothing: each message between stages says its shapes, which may change with each micro-batch."""

    def deepspeed_io(self, dataset, batch_size=None, route="train", pin_memory=True, data_sampler=None, collate_fn=None,
                     num_local_io_workers=None):
        """Returns a loader of this data rank's share of a dataset, in its order, which begins again when it ends, as
        DeepSpeed's does. All stages of a data rank have the same."""
        return RepeatingLoader(super().deepspeed_io(dataset, batch_size, "eval", pin_memory, data_sampler, collate_fn,
                                                    num_local_io_workers))

    def _batches(self, call, iterator, count):
        reads = self.is_first_stage() or self.is_last_stage() or self.module.reads_batches
        if iterator is None and reads:
            raise _native.UsageError(f"engine.{call}: there is no iterator of micro-batches on rank {self.global_rank}, of stage "
                                     f"{self.stage_id}: give one, or training_data to initialize()")
        if reads and not hasattr(iterator, "__next__"):
            raise _native.UsageError(f"engine.{call}: the iterator of micro-batches is a {type(iterator).__name__}; expected an "
                                     "iterator: iter() of it once, before the loop")
        return Batches(self, call, iterator if reads else None, count)

    # Steps.

    def train_batch(self, data_iter=None):
        """Makes a step: forward and backward of gradient_accumulation_steps micro-batches from the iterator, and the update.
        A micro-batch of a PipelineModule is (inputs, labels), each a tensor or a tuple; that of a decoder a dict with
        input_ids and labels. All stages of a data rank (engine.grid.get_data_parallel_rank()) are given the same ones, of
        any shapes; stages in between need no iterator for a PipelineModule. Returns the mean loss, over micro-batches and
        data ranks, on every rank. Collective."""
        self._refuse_without_optimizer("train_batch")
        if not torch.is_grad_enabled():
            raise _native.UsageError("engine.train_batch was called under torch.no_grad(): leave the block first")
        if not self._has_trained:
            self._has_trained = True
            guard_others()
        self.data_iterator = data_iter if data_iter is not None else self.data_iterator
        batches = self._batches("train_batch", self.data_iterator, self._accumulation)
        self.module.train()
        rate, groups = self.optimizer.given()
        rates = self.optimizer.rates()
        self._tree.check(type(self.module).__name__)
        with self._guarded("train_batch"):
            with self._progress.counting(self.native.step_count()):
                StageTasks(self, batches).train()
            self._result = self.native.step(rate, groups)
        self.micro_steps += self._accumulation
        self._conclude_step(rates, self._accumulation, None)
        return torch.tensor(self._result.loss, device=self.device)

    def eval_batch(self, data_iter, return_logits=False, compute_loss=True, reduce_output="avg", bcast_loss=True,
                   num_micro_batches=None):
        """Runs num_micro_batches (gradient_accumulation_steps) micro-batches forward. Returns their mean loss, over data
        ranks too, on every rank; with return_logits (loss, the outputs of the last micro-batch, on the last stage). Without
        compute_loss it returns the outputs of all micro-batches on the last stage, and None on the others. Collective."""
        if compute_loss and reduce_output != "avg":
            raise _native.UsageError(f"engine.eval_batch: reduce_output is {reduce_output!r}; expected avg, the mean over "
                                     "micro-batches and data ranks")
        count = num_micro_batches or self._accumulation
        batches, trained = self._batches("eval_batch", data_iter, count), self.module.training
        self.module.eval()
        try:
            with self._guarded("eval_batch"), torch.no_grad():
                losses, outputs = StageTasks(self, batches).evaluate(compute_loss)
                if not compute_loss:
                    return outputs or None
                loss = torch.tensor(self._ranks.sum(sum(losses)) / self._ranks.sum(float(len(losses))), device=self.device)
        finally:
            self.module.train(trained)
        return (loss, outputs[-1] if outputs else None) if return_logits else loss

    def load_checkpoint(self, load_dir, tag=None, load_module_strict=True, load_optimizer_states=True,
                        load_lr_scheduler_states=True, load_module_only=False, custom_load_fn=None):
        """As Engine.load_checkpoint(), of any number of stages and data ranks, but always with optimizer states."""
        if load_module_only or not load_optimizer_states:
            raise _native.UsageError("engine.load_checkpoint: the stages of a pipeline load a checkpoint as a whole: leave "
                                     "load_module_only and load_optimizer_states=False out")
        return super().load_checkpoint(load_dir, tag, load_module_strict, True, load_lr_scheduler_states, False, custom_load_fn)

    def get_additional_losses(self):
        """Returns None: there is one loss."""

    def get_pipeline_parallel_rank(self):
        """Returns the number of this rank's stage."""
        return self.stage_id


def _refused(name, why):
    def refuse(self, *args, **kwargs):
        raise _native.UsageError(f"engine.{name}() is not there for a pipeline: {why}")
    refuse.__name__, refuse.__doc__ = name, f"Raises UsageError: {why}."
    return refuse


for _name, _why in _REFUSED.items():
    setattr(PipelineEngine, _name, _refused(_name, _why))


def _of_rank_0(job, number):
    """Returns rank 0's number. Collective."""
    held = torch.tensor([number])
    job.broadcast(held, 0)
    return int(held)
