"""The engine with the interface of DeepSpeed's: an nn.Module that trains the model inside it."""

import contextlib
import os

import torch
from torch import nn

from . import _native, checkpoints, ending, module_state, partial_loads, signals
from .accumulation import Accumulation
from .autocast import around_forward
from .buffers import Buffers
from .codes import from_numbers, to_numbers
from .compiled import CompiledModules, refuse_compiled
from .config_values import ConfigValues
from .distributed import process_group
from .divisions import Divisions
from .errors import AssertedUsage
from .evaluation import Evaluation
from .figures import Figures
from .gradients import GivenGradients, read_gradient
from .guard import Guard
from .integrations.peft import tuners_in
from .loaders import loader_of
from .micro_batches import MicroBatches
from .optimizers import guard_others, refuse_missing_metrics
from .parts import is_split, named_parts, parts_of
from .passes import Link, PlainState, Tree, has_pass, make_passes, refuse_no_loss, supersede
from .progress import NoTimer, Progress
from .ranks import register
from .schedules import ConfigSchedule
from .streams import whole_values
from .units import is_in_engine
from .weights import Weights
from .zero import describe


class Engine(Accumulation, ConfigValues, Figures, Weights, nn.Module):
    """The result of zerocore.initialize(). Attributes that it does not have are the model's. A call that fails on
    one rank ends it on all; later calls then raise UsageError. Call it from one thread."""

    def __init__(self, module, native, ranks, settings, config_source, optimizer, units_around, others=()):
        super().__init__()
        self.module = module
        parts = named_parts(module)
        self._tensors = list(parts.values())  # that have the values of the module's parameters
        self._progress = Progress(settings, ranks, self._parameter_count())  # before the rest, since its files may be refused
        self.monitor = self._progress.events
        self.optimizer = optimizer
        self.lr_scheduler = None
        self.training_dataloader = self.collate_fn = None
        self.native = native
        self._ranks = ranks
        self._settings = settings
        self._config_source = config_source
        self._scaled = False  # whether this micro-batch's loss was multiplied by the loss scale
        self._guard = Guard(self)
        self._said_dropped = False
        self._begin_accumulation(settings)
        self._by_engine = False  # whether the pass that runs is a call of the engine
        self._casts = around_forward(settings, self.device)
        self.micro_batches = MicroBatches(self, ranks, settings)
        self._micro, self._accumulation = self.micro_batches.share.size, self.micro_batches.share.own
        self._global = self.micro_batches.share.samples
        self._divisions = Divisions(self._accumulation, ranks.rank == 0)
        self._result = None
        self._saved_at = None  # the step of the last checkpoint
        self.micro_steps = 0
        self.global_steps = 0
        self.skipped_steps = 0
        self.loaded_checkpoint_tag = None
        self.given_gradients = GivenGradients()
        self.tput_timer = NoTimer()
        self.others = [parameter for _, parameter in others]  # trained ones outside of the module
        self._trained = {id(p) for p in [*module.parameters(), *self.others] if p.requires_grad}
        self._names = {id(parameter): name for name, parameter in [*parts.items(), *others]}
        self._split_names = {id(parameter): name for name, parameter in module.named_parameters() if is_split(parameter)}
        sharded = self._rests_sharded()
        for index, parameter in enumerate([*self._tensors, *self.others]):
            describe(parameter, index, ranks.data_size, sharded)
            parameter.__getstate__ = PlainState(parameter)
            supersede(parameter, self)
            if is_in_engine(parameter):
                parameter._zerocore_engine = Link(self)
        self._successor = None  # the engine that a later zerocore.initialize() made for the module
        self._tree = Tree(module)
        self.tuners = tuners_in(module)
        self._buffers_of_model = Buffers(module)
        self._compiled = CompiledModules(module, units_around)
        self._without_values = set()  # names of parameters
        self._slices = {}  # {name: (parameter, Slice)} from zero.Init, until the native engine has them
        self._stream = None  # a weak reference to a stream of weights that runs
        self._changes_sent = 0  # calls of stream_changes()
        self._lent = set()  # ids of the parameters that GatheredParameters has made whole
        self._in_forward = self._has_trained = False
        # from_pretrained() returns a model in eval() mode, and not every script calls train(): until one of them is
        # called, passes with gradients are training passes.
        self._was_given_in_eval = not module.training
        self._evaluation = Evaluation(native, ranks, type(module).__name__, sharded)
        self._follow_passes(native, sharded)
        self._reduces_each = native.reduces_each_micro_step()
        if optimizer is not None:
            optimizer.attach(self)
        register(self)
        self._progress.show_start(native, settings)

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            modules = self.__dict__.get("_modules", {})
            if "module" not in modules:
                raise
            module = modules["module"]
            try:
                return getattr(module, name)
            except AttributeError:
                if name.startswith("__") or name in dir(type(module)):
                    raise  # from a property of the model, whose own error says why
                raise AttributeError(f"zerocore's engine, in place of DeepSpeed's, has no attribute {name!r}, and "
                                     f"its model, a {type(module).__name__}, has none either") from None

    def _follow_passes(self, native, sharded):
        make_passes(self.module, native.unit_names(), self, keeps=sharded)

    def _parameter_count(self):
        return sum(tensor.numel() for tensor in self._tensors if is_in_engine(tensor))

    def _rests_sharded(self):
        largest = max(filter(is_in_engine, self._tensors), key=torch.Tensor.numel)
        return self.zero_optimization_stage() == 3 or not self.native.is_resident(self.name_of(largest), largest.dtype)

    def train(self, mode=True):
        """Sets the mode. Collective if parameters are sharded and the mode changes: a rank without further batches
        takes part in the passes of the others here."""
        self._was_given_in_eval = False
        if mode:
            with self._guarded("train"):
                pass
        else:
            self._evaluation.begin()
        return super().train(mode)

    # A training step.

    def forward(self, *args, **kwargs):
        """Runs the model's forward(), as a training or an evaluation pass."""
        refuse_compiled(type(self).__name__)
        self._by_engine = True
        try:
            with self._casts():
                if has_pass(self.module):
                    return self.module(*args, **kwargs)
                return self._run(self.module, args, kwargs)
        finally:
            self._by_engine = False

    def compile(self, backend="inductor", compile_kwargs=None, schedule=None, compiled_autograd_enabled=False, **options):
        """Compiles each unit by torch.compile(): the whole model cannot be, since units are gathered and freed one by one.
        `backend`, `compile_kwargs` and `options` (mode, dynamic, fullgraph, ...) are torch.compile()'s."""
        if schedule is not None or compiled_autograd_enabled:
            raise _native.UsageError("engine.compile: schedule and compiled_autograd_enabled change how DeepSpeed gathers; "
                                     "the engine gathers around each compiled unit: leave them out")
        self._compiled.compile_units(self.native.unit_names(), {"backend": backend, **(compile_kwargs or {}), **options})

    def _run(self, call, args, kwargs):
        """Runs the module's own forward as a pass of the engine, for calls of the engine and of the module."""
        if self._in_forward and self._guard.has_turn() or self.native is not None and self.native.is_recomputing():
            return call(*args, **kwargs)
        self._was_given_in_eval = self._was_given_in_eval and not self.module.training
        trains = self.module.training or self._was_given_in_eval
        training = trains and torch.is_grad_enabled() and self.optimizer is not None
        if self._lent:
            if not training and len(self._lent) == len(self._names):
                return call(*args, **kwargs)
            raise _native.UsageError("a forward pass inside of zero.GatheredParameters is an evaluation with all "
                                     "parameters of the model gathered; leave the block first")
        self._check_values()
        self._tree.check(type(self.module).__name__)
        if self._guard.failure is None:
            self.native.check_unchanged(training)
        with self._guarded("forward", evaluates=not training):
            self._compiled.open_before_calls()
            self._in_forward = True
            try:
                if not training:
                    self._evaluation.begin_pass()
                else:
                    self._begin_training()
                self.native.pre_forward(training, self._surely_last(), self._by_engine)
                with self._around_training() if training else contextlib.nullcontext():
                    result = call(*args, **kwargs)
                if training:
                    self._divisions.watch(result)
                self._end_call()
            finally:
                self._in_forward = False
        return result

    def _begin_training(self):
        self.micro_batches.note_pass()
        if not self._has_trained:
            self._has_trained = True
            guard_others()  # now, since a script may have made one after initialize()

    def _end_call(self):
        """Ends the open call of forward(), unless a backward inside of it has done so (Lightning's manual optimization)."""
        if self._in_forward:
            self._in_forward = False
            self.native.post_forward()

    @contextlib.contextmanager
    def _around_training(self):
        with self._progress.counting(self.native.step_count()), self.micro_batches.own_random_numbers(self.device):
            yield

    def _check_values(self):
        if self._without_values:
            names = [name for name in self._names.values() if name in self._without_values]
            raise _native.UsageError(
                f"{len(names)} parameters have no values, {', '.join(names[:3])} among them: the module was constructed on "
                "the meta device. Give them values before the first pass: engine.load_weights(), "
                "engine.load_checkpoint() or engine.initialize_rest()")

    def scale(self, loss, scale_wrt_gas=True):
        """Returns the loss to call backward() on: `engine.scale(loss).backward()` replaces engine.backward(loss). As
        in DeepSpeed, hooks see gradients divided by gradient_accumulation_steps, except with
        zero_core.rank_independent."""
        self._refuse_without_optimizer("backward")
        refuse_no_loss(loss)
        independent = self.micro_batches.rank_independent
        if independent and not scale_wrt_gas:
            raise _native.UsageError("engine.backward: scale_wrt_gas=False says that the script has divided the loss by the "
                                     "number of micro-batches, which depends on the number of ranks; with "
                                     "zero_core.rank_independent give the mean over the micro-batch")
        with self._guarded("scale"):
            self._end_call()
            self._scaled = True
            steps = self._divisor_of_losses(scale_wrt_gas)
            self.native.note_loss(float(loss.detach()) / steps)
            factor = self.native.take_scale() / steps
            self._divisions.begin_backward(loss, factor if scale_wrt_gas else None)
        return loss if factor == 1 else loss * factor

    def backward(self, loss, retain_graph=False, scale_wrt_gas=True):
        """Computes gradients. `loss`: one number, the mean over this rank's micro-batch; the engine averages over
        ranks and micro-batches. Returns the loss divided by gradient_accumulation_steps, as DeepSpeed does, except with
        zero_core.rank_independent."""
        scaled = self.scale(loss, scale_wrt_gas)
        with self._guarded("backward"):
            scaled.backward(retain_graph=retain_graph)
            self.native.post_backward()
            self._divisions.begin_backward(None, 1.0)
        divisor = self._divisor_of_losses(scale_wrt_gas)
        return loss if divisor == 1 else loss / divisor

    def step(self, lr_kwargs=None, max_norm=None):
        """Updates the weights after the last micro-batch of a step; earlier calls only count micro-batches.
        `max_norm` clips this step's gradients, in addition to the config. `lr_kwargs` go to the scheduler's step()."""
        self._refuse_without_optimizer("step")
        boundary = self._end_micro_batch()
        self._refuse_unscaled()
        if boundary:
            refuse_missing_metrics(self.lr_scheduler, lr_kwargs)
            rate, groups = self.optimizer.given()
            rates = self.optimizer.rates()
        self.micro_steps += 1
        if not boundary:
            return
        given, begun = self.given_gradients.end_step(self), self.native.begun()
        with self._guarded("step"):
            self._result = self.native.step(rate, groups, self._mean_over(), max_norm, given)
        self._conclude_step(rates, begun, lr_kwargs)

    def _conclude_step(self, rates, begun, lr_kwargs):
        """Reports the step of self._result, which had the groups' rates and `begun` micro-batches."""
        self._note_step(self._result.skipped, begun)
        self.optimizer.note_step(self._result.skipped)
        self._progress.note_step(self._result, self.global_samples, rates, self.skipped_steps, self)
        self._progress.diagnose(self.native, self._result.step, self._global)
        if not self._result.skipped:
            self.optimizer.follow(self.native)
            if self.lr_scheduler is not None and not isinstance(self.lr_scheduler, ConfigSchedule):
                self.lr_scheduler.step(**(lr_kwargs or {}))
        if self._result.stop_requested:
            signals.note_request(self, self._ranks.rank == 0)

    @property
    def stop_requested(self):
        """Whether a signal (Ctrl-C, SIGTERM) to any rank has requested a stop. step() changes it, on all ranks in
        the same step. A script that reads it must end its loop itself: no KeyboardInterrupt is raised then."""
        return signals.is_requested()

    @property
    def is_saved(self):
        """Whether the last checkpoint that this engine wrote or loaded contains its last step."""
        return self._saved_at == self.global_steps

    def _refuse_without_optimizer(self, what):
        if self.optimizer is None:
            raise AssertedUsage(
                f"engine.{what}: this engine of {type(self.module).__name__} has no optimizer, and evaluates only; name one "
                'in the config ("optimizer": {"type": ...}), or give initialize() one')

    def seed_of_micro_batch(self):
        """Returns a seed from 0 to 2^63 - 1 for random numbers of this rank's current micro-batch, or of the next one
        once its backward has begun. It depends on the config's `seed`, the step and the micro-batch's number among those
        of all ranks, so with zero_core.rank_independent not on the number of ranks."""
        with self._guarded("seed_of_micro_batch", evaluates=True):
            return self.micro_batches.seed()

    def zero_grad(self, set_to_none=True):
        """Drops the gradients of this step's backward passes so far, on all ranks; after step() there are none. A
        forward pass without its backward stays. Setting all p.grad to None (zero_grad() of the model or of torch's
        optimizer) has the same effect at the next call. Collective if there are gradients."""
        with self._guarded("zero_grad"):
            if self.native.drop_gradients() and self._accumulation > 1 and not self._said_dropped:
                self._said_dropped = True
                if self._ranks.rank == 0:
                    print("zero: zero_grad() was called among the micro steps of a step, whose gradients so far are "
                          "forgotten", flush=True)

    def write_trace(self, file=None):
        """Writes the newest steps of all ranks to a file for Perfetto; without a name, to zero_core.trace. Returns a
        summary, a text of several lines, on rank 0, and None on the others. Collective."""
        file = file or self._settings.trace
        if not file:
            raise _native.UsageError("engine.write_trace: no file: give its name, or set zero_core.trace in the config")
        with self._guarded("write_trace", settles=True):
            return self.native.write_trace(os.fspath(file)) or None

    # Weights and checkpoints.

    def digest(self):
        """Returns a hash of all weights, master weights and optimizer states, equal for all stages; not of buffers and
        extra states, which may differ between ranks. Collective."""
        with self._guarded("digest", settles=True):
            return self.native.digest()

    def trains(self, parameter):
        """Returns whether the parameter was trainable when it became the engine's."""
        return id(parameter) in self._trained

    def name_of(self, parameter):
        """Returns the parameter's name in the model."""
        return self._names.get(id(parameter)) or self._split_names[id(parameter)]

    def _has(self, tensor):
        """Returns whether the tensor is a parameter of this engine, or a part of one."""
        return id(tensor) in self._names or id(tensor) in self._split_names

    def read(self, parameter, what="value"):
        """Returns all of "value", "grad", "master" or an optimizer state ("exp_avg", ...) as fp32, in the
        parameter's shape. Between backward() and step() the gradient is that of the micro-batches so far, averaged
        over ranks and micro-batches, without loss scale and before clipping; later that of the last step. Collective."""
        if not is_in_engine(parameter) or is_split(parameter):
            return self._read_bytes(parameter, what)
        with self._guarded("read", settles=True):
            if what == "grad":
                gradient = read_gradient(self, parameter)
                return self.given_gradients.over(self.name_of(parameter), gradient, self.native.drops())
            numbers = self.native.read(self.name_of(parameter), what, list(parameter.shape))
            return from_numbers(parameter, numbers).to(parameter.device)

    def _read_bytes(self, parameter, what):
        if what != "value":
            raise _native.UsageError(f"parameter {self.name_of(parameter)} holds bytes and is frozen: it has no {what}")
        with self._guarded("read", settles=True):
            return whole_values(self, parameter)

    def write(self, parameter, values):
        """Sets a parameter to `values`, which must be equal on all ranks. Collective."""
        if not is_in_engine(parameter):
            parameter.data.copy_(values)
            return
        if is_split(parameter):
            if type(values) is not type(parameter):
                raise _native.UsageError(f"engine.write: parameter {self.name_of(parameter)} is a {type(parameter).__name__}, and "
                                         f"the values are a {type(values).__name__}: give values of its class")
            for (_, tensor), (_, value) in zip(parts_of(parameter), parts_of(values)):
                self.write(tensor, value)
            return
        with self._guarded("write", settles=True):
            self.native.write(self.name_of(parameter), to_numbers(parameter, values))

    def save_checkpoint(self, save_dir, tag=None, client_state=None, save_latest=True,
                        exclude_frozen_parameters=False):
        """Writes a checkpoint, which any stage and number of ranks can load (without save_latest only by its tag).
        With checkpoint.writer.decoupled it returns before the files are written: later steps, the next save or load,
        or the engine's end finish it and raise its errors. A tag of any type becomes text. Saved between the micro-batches
        of a step it contains none of their gradients: a resumed run begins that step again. Collective."""
        save_dir = checkpoints.folder(save_dir, "engine.save_checkpoint", "save_dir")
        tag = checkpoints.text_of(tag, f"global_step{self.global_steps}")
        root = self._ranks.rank == 0
        if root and (notice := self._buffers_of_model.notice_on_save()):
            print(f"zero: {notice}", flush=True)
        with self._guarded("save_checkpoint", settles=True):
            ending.end_collected(self._ranks)  # one of them may have saved in this folder
            options = checkpoints.save_options(self, tag, client_state)
            options.trainable_only = exclude_frozen_parameters
            self.native.finish_save()
            # Changes after the commit need to know that it happened.
            waits = self.native.saves_in_background() and (
                not save_latest or checkpoints.is_listed(save_dir, tag, self._ranks))
            latest = checkpoints.before_save(save_dir, tag, save_latest, self._ranks)
            saved = self.native.save(save_dir, options, waits)
            if root and saved:
                checkpoints.after_save(save_dir, tag, save_latest, latest)
            if not save_latest:
                self._ranks.sum(0.0)  # no rank continues before "latest" is restored
            if saved:
                self._saved_at = self.global_steps
            return saved

    def copy_to_peers(self, save_dir, client_state=None):
        """Call it after each step: begins a copy in memory of what save_checkpoint() would write, if one is due
        (zero_core.peer_copies, under zero run --restarts). Returns whether it has begun. Collective."""
        save_dir = checkpoints.folder(save_dir, "engine.copy_to_peers", "save_dir")
        if not self.native.peer_copy_due():
            return False
        with self._guarded("copy_to_peers", settles=True):
            return checkpoints.copy_to_peers(self, save_dir, client_state)

    def load_checkpoint(self, load_dir, tag=None, load_module_strict=True, load_optimizer_states=True,
                        load_lr_scheduler_states=True, load_module_only=False, custom_load_fn=None):
        """Loads the newest valid checkpoint, or the one with the tag. Returns (path, client state), or (None, None)
        if there is none. Drops gradients: the next micro-batch is the first of its step. With load_module_only, or without
        load_optimizer_states, each rank reads all weights into memory, in fp32, and sets master weights to them; states and
        the optimizer's count of steps stay the engine's own. Raises UsageError for a custom_load_fn. Collective."""
        if custom_load_fn is not None:
            raise _native.UsageError("load_checkpoint: custom_load_fn has no effect, since a checkpoint has no state_dict; "
                                     "read one by engine.load_weights(), which takes safetensors and names")
        load_dir, schedule = checkpoints.folder(load_dir, "engine.load_checkpoint", "load_dir"), self.lr_scheduler
        tag = checkpoints.text_of(tag, None)
        iteration = schedule.last_batch_iteration if isinstance(schedule, ConfigSchedule) else None
        whole = load_optimizer_states and not load_module_only
        with self._guarded("load_checkpoint", settles=True):
            if whole:
                resumed, state = self._resume(load_dir, tag, load_module_strict)
            else:
                resumed, state = partial_loads.load(self, load_dir, tag, self._ranks, load_module_strict, load_module_only)
        if resumed is None:
            checkpoints.tell_of_none(load_dir, self._ranks)
            return None, None
        if load_lr_scheduler_states:
            checkpoints.refuse_other_scheduler(schedule, state)
        if not load_module_only:
            self._take_state(state, whole)
        saved = state.get("lr_scheduler")
        if load_lr_scheduler_states and saved and schedule is not None:
            schedule.load_state_dict(saved)
        elif iteration is not None and not (load_lr_scheduler_states and whole):
            schedule.go_to(iteration)
        self._without_values, self._slices = set(), {}
        self._saved_at = self.global_steps if whole else None
        self.loaded_checkpoint_tag = resumed
        return f"{load_dir}/{resumed}", state.get("client_state", {})

    def _resume(self, load_dir, tag, strict):
        """Returns (the tag, the saved state), or (None, None) if there is no checkpoint. Collective."""
        self.native.drop_gradients()
        self.native.finish_save()
        if tag is None:
            tag = checkpoints.tag_to_load(load_dir, self._ranks)
        resumed = checkpoints.resume(self, load_dir, tag, strict) if tag is not None else None
        if resumed is None:
            return None, None
        if self.optimizer is not None:
            self.optimizer.ahead = 0
        checkpoints.restore_random(resumed, self._ranks, self.device, self.micro_batches.seeds_passes)
        state = checkpoints.state_of(resumed)
        module_state.restore(self, state, resumed.tag)
        return resumed.tag, {"global_steps": resumed.step, **state}

    def _take_state(self, state, with_optimizer):
        self.global_steps = state.get("global_steps", self.global_steps)
        self.global_samples = state.get("global_samples", self.global_steps * self._global)
        micro_steps = state.get("micro_steps")
        self.micro_steps = self.global_steps * self._accumulation if micro_steps is None else micro_steps
        # The load has dropped what was accumulated, and the accumulation may be another one.
        self.micro_steps -= self.micro_steps % self._accumulation
        self._counted_from = 0
        self.skipped_steps = state.get("skipped_steps", 0)
        if self.optimizer is not None and with_optimizer:
            if "param_groups" in state:
                self.optimizer.load_groups(state["param_groups"])
            self.optimizer.follow(self.native)

    def deepspeed_io(self, dataset, batch_size=None, route="train", pin_memory=True, data_sampler=None, collate_fn=None,
                     num_local_io_workers=None):
        """Returns a loader of this rank's share of a dataset, in micro-batches, the last of which may be smaller unless
        dataloader_drop_last is true. It is shuffled unless the dataset is iterable or `route` is "eval" or "predict". With
        zero_core.rank_independent its order is that of GlobalSampler, with the config's `seed`, and no batch is smaller."""
        return loader_of(self, dataset, batch_size, route, pin_memory, data_sampler, collate_fn or self.collate_fn,
                         num_local_io_workers, self._settings)

    def empty_partition_cache(self):
        """Does nothing: no parameters stay gathered between passes."""

    @property
    def dp_world_size(self):
        """The number of data ranks: of all ranks, without stages of a pipeline."""
        return self._ranks.data_size

    @property
    def mp_world_size(self):
        """1: there is no model parallelism from Python."""
        return 1

    seq_parallel_size = mp_world_size

    @property
    def data_parallel_group(self):
        """The group of torch.distributed over all data ranks, for values that the script exchanges itself."""
        return process_group(self._ranks)

    dp_process_group = seq_data_parallel_group = data_parallel_group

    @property
    def client_optimizer(self):
        """The optimizer that initialize() was given; None if the config named one."""
        return None if self.optimizer is None or self.optimizer.client_name() is None else self.optimizer.optimizer

    def destroy(self):
        """Ends the engine; the model is plain again, and has its values if they were not sharded. Collective; the end
        of the script does it too."""
        ending.destroy(self)

    def __del__(self):
        if self.__dict__.get("native") is not None:  # after the script's end it is, and modules are gone
            ending.collect(self)

    def _guarded(self, what, evaluates=False, settles=False):
        """Wraps a call: see Guard.around()."""
        return self._guard.around(what, evaluates, settles)

    def __deepcopy__(self, memo):
        raise _native.UsageError("an engine cannot be copied: copy engine.module, at stage 3 inside of "
                                 "zero.GatheredParameters(engine.parameters())")

    def __reduce_ex__(self, protocol):
        raise _native.UsageError("an engine cannot be pickled: save engine.module or its state_dict(), at stage 3 inside "
                                 "of zero.GatheredParameters(engine.parameters()), or call save_checkpoint()")
