"""The figures that scripts read of an engine, by the names of DeepSpeed's engine."""

import torch


class Figures:
    """Facts about an engine's ranks, config and last step. No call communicates."""

    def get_lr(self):
        """Returns the learning rate of each group for the next step; [] without an optimizer."""
        return [] if self.optimizer is None else self.optimizer.rates()

    def get_mom(self):
        """Returns each group's betas (Adam) or momentum (SGD), 0.0 if it has neither."""
        groups = [] if self.optimizer is None else self.optimizer.param_groups
        return [group.get("betas", group.get("momentum", 0.0)) for group in groups]

    def get_global_grad_norm(self):
        """Returns the gradient norm of the last step, before clipping; None before the first step."""
        return None if self._result is None else self._result.grad_norm

    @property
    def last_step(self):
        """The loss of the last step (a mean over ranks and micro-batches; NaN if the script called loss.backward(), which
        does not report it), its gradient norm, rate and loss scale; None before the first step."""
        return self._result

    @property
    def _global_grad_norm(self):
        return self.get_global_grad_norm()

    @property
    def config(self):
        """The config as a dict: the program's own, or the contents of its file or text."""
        return self._config_source.as_dict()

    def describe_config(self):
        """Returns the values in effect, one per line, as `zero config explain` prints them."""
        return self.native.describe_config()

    @property
    def device(self):
        """The torch.device of this rank's parameters."""
        return torch.device("cpu") if self._ranks.gpu < 0 else torch.device("cuda", self._ranks.gpu)

    @property
    def global_rank(self):
        """This rank's number, 0 to world_size - 1."""
        return self._ranks.rank

    @property
    def local_rank(self):
        """This rank's number among the ranks of its host."""
        return self._ranks.local_rank

    @property
    def world_size(self):
        """The number of ranks."""
        return self._ranks.size

    def train_batch_size(self):
        """Returns the number of samples per step, over all ranks and micro-batches."""
        return self._global

    def train_micro_batch_size_per_gpu(self):
        """Returns the number of samples per rank and micro-batch."""
        return self._micro

    def gradient_accumulation_steps(self):
        """Returns the number of micro-batches of this rank in the current step."""
        return self.micro_batches.count if self.micro_batches.rank_independent else self._accumulation

    def zero_optimization_stage(self):
        """Returns the ZeRO stage, 0 to 3."""
        return self._settings.stage

    def zero_optimization(self):
        """Returns whether the stage is 1 or higher."""
        return self.zero_optimization_stage() > 0

    def zero_optimization_partition_gradients(self):
        """Returns whether the stage is 2 or 3."""
        return self.zero_optimization_stage() >= 2

    def zero_optimization_partition_weights(self):
        """Returns whether the stage is 3."""
        return self.zero_optimization_stage() == 3

    def get_batch_info(self):
        """Returns the functions that return the batch of a step, that of a rank's micro-batch, and the number of these."""
        return self.train_batch_size, self.train_micro_batch_size_per_gpu, self.gradient_accumulation_steps

    def optimizer_name(self):
        """Returns the class of the client's optimizer, or the config's type; None without an optimizer."""
        if self.optimizer is None:
            return None
        return self.optimizer.client_name() or self._settings.optimizer_type

    def optimizer_params(self):
        """Returns the config's optimizer.params as they are written, or None."""
        return (self.config.get("optimizer") or {}).get("params")

    def scheduler_name(self):
        """Returns the config's scheduler.type, or None."""
        return (self.config.get("scheduler") or {}).get("type")

    def scheduler_params(self):
        """Returns the config's scheduler.params as they are written, or None."""
        return (self.config.get("scheduler") or {}).get("params")

    def loss_scale(self):
        """Returns fp16.loss_scale: 0 if the scale is dynamic. optimizer.cur_scale is the scale itself."""
        return self._settings.loss_scale_options["loss_scale"]

    def dynamic_loss_scale(self):
        """Returns whether the loss scale changes while training."""
        return self.fp16_enabled() and self.loss_scale() == 0

    def initial_dynamic_scale(self):
        """Returns the first dynamic loss scale."""
        return 2 ** self._settings.loss_scale_options["initial_scale_power"]

    def dynamic_loss_scale_args(self):
        """Returns the options of the dynamic loss scale."""
        options = self._settings.loss_scale_options
        return {"init_scale": self.initial_dynamic_scale(), "scale_window": options["scale_window"],
                "min_scale": options["min_scale"]}

    def torch_autocast_enabled(self):
        """Returns whether forward passes run under torch.autocast, by the config."""
        return self._settings.autocasts

    def torch_autocast_dtype(self):
        """Returns the torch.dtype of torch_autocast.dtype, or None."""
        return self._settings.autocast_dtype

    def get_data_parallel_rank(self):
        """Returns this rank's number among the data ranks."""
        return self._ranks.data_rank

    def get_model_parallel_rank(self):
        """Returns 0: there is no model parallelism from Python."""
        return 0

    get_tensor_parallel_rank = get_model_parallel_rank

    def fp16_enabled(self):
        """Returns whether the compute dtype is fp16."""
        return self._settings.fp16

    def bfloat16_enabled(self):
        """Returns whether the compute dtype is bf16."""
        return self._settings.bf16

    def gradient_clipping(self):
        """Returns the gradient norm to which steps clip; 0 if they do not."""
        return self._settings.gradient_clipping

    def steps_per_print(self):
        """Returns the number of steps from one printed line to the next."""
        return self._settings.steps_per_print

    def memory_table(self):
        """Returns a table of the engine's memory on this rank, in bytes, as text."""
        return self.native.memory_table()
