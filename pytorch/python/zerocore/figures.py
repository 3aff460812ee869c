"""The figures that scripts read of an engine, by the names of DeepSpeed's engine."""

import torch


class Figures:
    """Facts about an engine's ranks, config and last step. No call communicates."""

    def get_lr(self):
        """Returns the learning rate of each group for the next step; [] without an optimizer."""
        return [] if self.optimizer is None else self.optimizer.rates()

    def get_mom(self):
        """Returns each group's betas (Adam) or momentum (SGD), None if it has neither."""
        groups = [] if self.optimizer is None else self.optimizer.param_groups
        return [group.get("betas", group.get("momentum")) for group in groups]

    def get_global_grad_norm(self):
        """Returns the gradient norm of the last step, before clipping; None before the first step."""
        return None if self._result is None else self._result.grad_norm

    def was_step_applied(self):
        """Returns whether the last step changed the weights: not if it was skipped for an overflow."""
        return self._result is not None and not self._result.skipped

    @property
    def last_step(self):
        """The loss of the last step (a mean over ranks and micro-batches; NaN if the script called loss.backward(), which
        does not report it), its gradient norm, rate and loss scale; None before the first step."""
        return self._result

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

    @property
    def global_samples(self):
        """The number of samples in the steps so far, over all ranks."""
        return self.global_steps * self._global

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
