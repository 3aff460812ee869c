"""The accumulation of gradients over micro-batches: which call of engine.step() ends a step, and what its mean is over."""

import contextlib

from . import _native
from .divisions import Divisions
from .errors import AssertedUsage


class Accumulation:
    """The engine's part that decides when a step ends. With managed_gradient_accumulation false each step() ends one."""

    def _begin_accumulation(self, settings):
        self._manages = settings.manages_accumulation
        self._boundary = None  # the argument of set_gradient_accumulation_boundary()
        self._boundary_of_this_step = False
        self._block = None  # the name of the context manager that encloses the script's passes
        self._applied = False  # whether the last step() changed the weights
        self._other_samples = 0  # of the steps so far that had another number than the next one's
        self._counted_from = 0  # the micro step from which steps have the present number of micro-batches
        self._said_unscaled = False
        if not self._manages and settings.rank_independent:
            raise _native.ConfigError("managed_gradient_accumulation: false needs steps of any length, and with "
                                      "zero_core.rank_independent a step has a fixed number of micro-batches: leave one out")

    def managed_gradient_accumulation(self):
        """Returns whether the engine counts micro-batches; otherwise each step() ends an accumulation."""
        return self._manages

    def was_step_applied(self):
        """Returns whether the last call of step() changed the weights: not between the ends of accumulations, and not if
        it was skipped for an overflow."""
        return self._applied

    def is_gradient_accumulation_boundary(self):
        """Returns whether the next step() updates the weights."""
        if self.micro_batches.rank_independent:
            return self.micro_batches.is_last()
        if self._boundary is not None:
            return self._boundary
        return not self._manages or (self.micro_steps - self._counted_from + 1) % self._accumulation == 0

    def set_train_batch_size(self, train_batch_size):
        """Sets the number of samples of the next steps, over all ranks, by another number of micro-batches of the same size.
        Call it between steps. Raises ValueError for a number that no whole number of micro-batches makes."""
        round_of_all = self._micro * self.dp_world_size
        if train_batch_size <= 0 or train_batch_size % round_of_all:
            raise ValueError(f"engine.set_train_batch_size({train_batch_size}): expected a multiple of {round_of_all}, which is "
                             f"train_micro_batch_size_per_gpu {self._micro} times {self.dp_world_size} data ranks")
        self._set_batch("set_train_batch_size", self._micro, train_batch_size // round_of_all)

    def set_train_micro_batch_size(self, micro_batch_size):
        """Sets the number of samples of a micro-batch as the engine counts them: loaders that exist keep theirs. The number of
        micro-batches in a step stays. Call it between steps."""
        if micro_batch_size <= 0:
            raise ValueError(f"engine.set_train_micro_batch_size({micro_batch_size}): expected a number from 1")
        self._set_batch("set_train_micro_batch_size", int(micro_batch_size), self._accumulation)

    def _set_batch(self, call, micro, accumulation):
        if self.micro_batches.rank_independent:
            raise _native.UsageError(f"engine.{call}: with zero_core.rank_independent the batch is the config's, in all steps")
        if self.optimizer is not None and self.native.begun():
            raise _native.UsageError(f"engine.{call}: {self.native.begun()} micro-batches of this step have begun already: call it "
                                     "after the engine.step() that ends a step")
        samples = self.global_samples
        self._micro, self._accumulation, self._counted_from = micro, accumulation, self.micro_steps
        self._global = micro * accumulation * self.dp_world_size
        self._divisions = Divisions(accumulation, self._ranks.rank == 0)
        self.global_samples = samples

    def set_gradient_accumulation_boundary(self, is_boundary):
        """Sets whether step() ends the accumulation, until the next call. If it is called before forward(), the last
        micro-batch's reductions overlap its backward."""
        if not self._manages:
            raise AssertedUsage("engine.set_gradient_accumulation_boundary() has no use with managed_gradient_accumulation "
                                "false: each engine.step() ends an accumulation")
        self._boundary = is_boundary
        self._boundary_of_this_step = True

    def _surely_last(self):
        """Returns whether this pass is known to be the last of its step. The boundary may also be set after
        forward(), so a value from an earlier step does not count."""
        if self._boundary is None:
            return self._manages and self._reduces_each and self.is_gradient_accumulation_boundary()
        return self._boundary and self._boundary_of_this_step

    def _backward_epilogue(self):
        """Does nothing: the engine notices the end of a script's own backward(), after which scripts for DeepSpeed call
        this."""

    @property
    def enable_backward_allreduce(self):
        """True: the engine reduces gradients itself."""
        return True

    @enable_backward_allreduce.setter
    def enable_backward_allreduce(self, enabled):
        """Prints a notice if it is False, which has no effect."""
        if not enabled and self.global_rank == 0:
            print("zero: engine.enable_backward_allreduce = False has no effect: gradients are averaged over all ranks as "
                  "zero_core.gradient_sync says, at the latest in step()", flush=True)

    def allreduce_gradients(self, bucket_size=None):
        """Does nothing: gradients are reduced as zero_core.gradient_sync says, at the latest in step()."""

    def no_sync(self):
        """Passes inside the block belong to one step, which ends after it; zero_core.gradient_sync of the config decides
        when gradients are reduced, with the same results. Works at every stage, as blocks inside it do."""
        return self._passes_without_step("no_sync")

    def coalesce_grad_reduction(self):
        """Passes inside the block belong to one step, which ends after it; zero_core.gradient_sync "last" of the config
        reduces their gradients once."""
        if not self._manages:
            raise AssertedUsage("engine.coalesce_grad_reduction() has no use with managed_gradient_accumulation false: each "
                                "engine.step() ends an accumulation")
        if self._block is not None:
            raise AssertedUsage(f"engine.coalesce_grad_reduction() cannot be nested inside another no_sync context: "
                                f"{self._block}() is around it already")
        return self._passes_without_step("coalesce_grad_reduction")

    @contextlib.contextmanager
    def _passes_without_step(self, name):
        before, self._block = self._block, name
        try:
            yield
        finally:
            self._block = before

    def _refuse_step_inside(self):
        if self._block is not None:
            raise AssertedUsage(f"It is illegal to call Engine.step() inside no_sync context manager: leave the block of "
                                f"engine.{self._block}() first, since its passes belong to one step")

    def _end_micro_batch(self):
        """Returns whether a step ends here."""
        self._refuse_step_inside()
        self._applied = False
        if not self.micro_batches.rank_independent:
            return self.is_gradient_accumulation_boundary()
        with self._guarded("step"):
            return self.micro_batches.end_one(self._boundary)

    def _note_step(self, skipped, begun):
        """Counts a step that had `begun` micro-batches."""
        self._applied = not skipped
        self._boundary_of_this_step = False
        self.global_steps += 1
        self.skipped_steps += skipped
        if not self._manages:
            self._other_samples += begun * (self._global // self._accumulation) - self._global

    @property
    def global_samples(self):
        """The number of samples in the steps so far, over all ranks."""
        return self.global_steps * self._global + self._other_samples

    @global_samples.setter
    def global_samples(self, samples):
        """Sets the count, from which later steps go on."""
        self._other_samples = samples - self.global_steps * self._global

    def _divisor_of_losses(self, scale_wrt_gas):
        return self._accumulation if scale_wrt_gas and not self.micro_batches.rank_independent else 1

    def _mean_over(self):
        """Returns the divisor of gradients in a step: scale() has divided each loss, and multiplied it by the loss scale;
        the script's own backward has not. None: the native engine divides by all micro-batches of the step."""
        if self.micro_batches.rank_independent:
            return None
        scales = self._settings.scales_loss
        if (self._accumulation > 1 or scales) and self.native.mixes_origins():
            raise _native.UsageError("some micro steps of this step called engine.backward(loss), which divides by "
                                     "gradient_accumulation_steps and multiplies by the loss scale, and others "
                                     "loss.backward(): call one of them in all, or engine.scale(loss).backward() in place of "
                                     "the second")
        if not self.native.by_hand():
            return 1.0
        return self._accumulation / (self.native.scale_of_losses() if scales else 1)

    def _refuse_unscaled(self):
        """Under fp16 an unscaled loss is an error if the pass was one of engine(...), and else a notice."""
        if self._settings.scales_loss and not self._scaled:
            if not self.native.by_hand():
                raise _native.UsageError("fp16: the loss of this micro step was not multiplied by the loss scale, so its "
                                         "gradients are too small: call engine.backward(loss), or "
                                         "engine.scale(loss).backward(), in place of loss.backward()")
            if not self._said_unscaled and self.global_rank == 0:
                print("zero: fp16: loss.backward() of a pass of engine.module had no loss scale, and the step divides by none: "
                      "gradients below 6e-8 are lost; engine.scale(loss).backward() keeps them", flush=True)
            self._said_unscaled = True
        self._scaled = False
