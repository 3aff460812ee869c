"""The engine as DeepSpeed's users know it: an nn.Module that trains the model it holds."""

import contextlib
import os

import torch
from torch import nn

from . import _native, checkpoints, construction, signals, weights
from .buffers import Buffers
from .compiled import CompiledModules, refuse_compiled
from .evaluation import Evaluation
from .gradients import GivenGradients, read_gradient
from .optimizers import clear_by, refuse_missing_metrics
from .passes import Link, PlainState, Tree, make_passes, refuse_no_loss, supersede
from .progress import NoTimer, Progress
from .ranks import register
from .units import is_in_engine
from .zero import describe


class Engine(nn.Module):
    """Made by zerocore.initialize(). Attributes that it does not have are the model's."""

    def __init__(self, module, native, ranks, settings, config_source, optimizer, units_around, others=()):
        super().__init__()
        self.module = module
        self.optimizer = optimizer
        self.lr_scheduler = None
        self.training_dataloader = None
        self.native = native
        self._ranks = ranks
        self._settings = settings
        self._config_source = config_source
        self._progress = Progress(settings, ranks.rank == 0)
        self._scaled = False  # this micro step's loss was multiplied by the loss scale
        self._failure = None
        self._said_dropped = False
        self._boundary = None  # as set_gradient_accumulation_boundary() says
        self._boundary_of_this_step = False
        self._micro, self._accumulation, self._global = native.batch()
        self._result = None
        self._saved_at = None  # the step of the last checkpoint
        self.micro_steps = 0
        self.global_steps = 0
        self.skipped_steps = 0
        self.loaded_checkpoint_tag = None
        self.given_gradients = GivenGradients()
        self.tput_timer = NoTimer()
        self._names = {id(parameter): name for name, parameter in [*module.named_parameters(), *others]}
        sharded = self._rests_sharded()
        for index, parameter in enumerate([*module.parameters(), *(parameter for _, parameter in others)]):
            describe(parameter, index, ranks.size, sharded)
            parameter.__getstate__ = PlainState(parameter)
            supersede(parameter, self)
            if is_in_engine(parameter):
                parameter._zerocore_engine = Link(self)
        self._successor = None  # the module's engine since a later zerocore.initialize()
        self._tree = Tree(module)
        self._buffers_of_model = Buffers(module)
        self._compiled = CompiledModules(module, units_around)
        self._without_values = set()  # names of parameters
        self._slices = {}  # of what zero.Init constructed, until they are in the native engine
        self._lent = set()  # ids of the parameters that GatheredParameters holds whole
        self._in_forward = False
        # from_pretrained() gives a model in eval() mode, and not every script calls train(): until one mode or the other
        # is set, passes with gradients train.
        self._was_given_in_eval = not module.training
        self._evaluation = Evaluation(native, ranks, type(module).__name__, sharded)
        make_passes(module, native.unit_names(), self)
        self._reduces_each = native.reduces_each_micro_step()
        if optimizer is not None:
            clear_by(optimizer, self)
        register(self)
        if ranks.rank == 0:
            for notice in settings.notices:
                print(f"zero: {notice}", flush=True)

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
                    raise  # of a property of the model, which says why
                raise AttributeError(f"zerocore's engine, as DeepSpeed's DeepSpeedEngine, has no attribute {name!r}, and "
                                     f"its model, a {type(module).__name__}, has none either") from None

    def _rests_sharded(self):
        largest = max(filter(is_in_engine, self.module.parameters()), key=torch.Tensor.numel)
        return self.zero_optimization_stage() == 3 or not self.native.is_resident(self.name_of(largest), largest.dtype)

    def train(self, mode=True):
        """Between evaluation and training it is collective where parameters rest as shards: a rank that has no
        more batches takes part in the passes of the others."""
        self._was_given_in_eval = False
        if mode:
            with self._guarded("train"):
                pass
        else:
            self._evaluation.begin()
        return super().train(mode)

    # A training step.

    def forward(self, *args, **kwargs):
        refuse_compiled(type(self).__name__)
        return self.module(*args, **kwargs)

    def _run(self, call, args, kwargs):
        """The module's own forward as a pass of the engine, whether the engine or the module was called."""
        if self._in_forward:
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
        if self._failure is None:
            self.native.check_unchanged(training)
        with self._guarded("forward", evaluates=not training):
            self._compiled.open_before_calls()
            self._in_forward = True
            try:
                if not training:
                    self._evaluation.begin_pass()
                self.native.begin_forward(training, self._surely_last())
                result = call(*args, **kwargs)
                self.native.end_forward()
            finally:
                self._in_forward = False
        return result

    def _check_values(self):
        if self._without_values:
            names = [name for name in self._names.values() if name in self._without_values]
            raise _native.UsageError(
                f"{len(names)} parameters have no values, {', '.join(names[:3])} among them: the module was constructed on "
                "the meta device. Give them values before the first pass: engine.load_weights(), "
                "engine.load_checkpoint() or engine.initialize_rest()")

    def scale(self, loss, scale_wrt_gas=True):
        """For `engine.scale(loss).backward()` in place of engine.backward(loss). As in DeepSpeed, hooks see gradients that
        are divided by gradient_accumulation_steps."""
        self._refuse_without_optimizer("backward")
        refuse_no_loss(loss)
        with self._guarded("scale"):
            self._scaled = True
            steps = self._accumulation if scale_wrt_gas else 1
            self.native.note_loss(float(loss.detach()) / steps)
            factor = self.native.loss_scale() / steps
        return loss if factor == 1 else loss * factor

    def backward(self, loss, retain_graph=False, scale_wrt_gas=True):
        """The mean loss of this rank's micro batch; the engine averages over ranks and micro steps."""
        scaled = self.scale(loss, scale_wrt_gas)
        with self._guarded("backward"):
            scaled.backward(retain_graph=retain_graph)
            self.native.end_backward()
        return loss

    def step(self, lr_kwargs=None, max_norm=None):
        """Updates the weights at the end of an accumulation; before that it counts micro steps. `max_norm` clips the
        gradients of this step, beside what the config does."""
        self._refuse_without_optimizer("step")
        boundary = self.is_gradient_accumulation_boundary()
        self._refuse_unscaled()
        if boundary:
            refuse_missing_metrics(self.lr_scheduler, lr_kwargs)
            rate, groups = self.optimizer.given()
            rates = self.optimizer.rates()
        self.micro_steps += 1
        if not boundary:
            return
        given = self.given_gradients.end_step(self)
        with self._guarded("step"):
            self._result = self.native.step(rate, groups, self._mean_over(), max_norm, given)
        self._boundary_of_this_step = False
        self.global_steps += 1
        self.skipped_steps += self._result.skipped
        self.optimizer.note_step(self._result.skipped)
        self._progress.note_step(self._result, self.global_samples, rates, self.skipped_steps)
        if not self._result.skipped:
            self.optimizer.follow(self.native)
            if self.lr_scheduler is not None:
                self.lr_scheduler.step(**(lr_kwargs or {}))
        if self._result.stop_requested:
            signals.note_request(self, self._ranks.rank == 0)

    @property
    def stop_requested(self):
        """Whether a signal (Ctrl-C, SIGTERM) to any rank has asked for a stop; it changes in step(), on all ranks in the
        same one. A script that reads it ends its loop itself, and no KeyboardInterrupt is raised."""
        return signals.is_requested()

    @property
    def is_saved(self):
        """Whether the last checkpoint that this engine has written or loaded has its last step."""
        return self._saved_at == self.global_steps

    def _mean_over(self):
        """scale() has divided each loss; what the script's own backward has brought is divided in the step."""
        if self._accumulation > 1 and self.native.mixes_origins():
            raise _native.UsageError("some micro steps of this step called engine.backward(loss), which divides by "
                                     "gradient_accumulation_steps, and others loss.backward(): call one of them in all, or "
                                     "engine.scale(loss).backward() in place of the second")
        return float(self._accumulation) if self.native.by_hand() else 1.0

    def _refuse_unscaled(self):
        if self._settings.scales_loss and not self._scaled:
            raise _native.UsageError("fp16: the loss of this micro step was not multiplied by the loss scale, so its "
                                     "gradients are too small: call engine.backward(loss), or "
                                     "engine.scale(loss).backward(), in place of loss.backward()")
        self._scaled = False

    def _refuse_without_optimizer(self, what):
        if self.optimizer is None:
            raise _native.UsageError(
                f"engine.{what}: this engine of {type(self.module).__name__} has no optimizer, and evaluates only; name one "
                'in the config ("optimizer": {"type": ...}), or give initialize() one')

    def is_gradient_accumulation_boundary(self):
        if self._boundary is not None:
            return self._boundary
        return (self.micro_steps + 1) % self._accumulation == 0

    def set_gradient_accumulation_boundary(self, is_boundary):
        """Until the next call. Before forward() it lets the last micro step's reductions overlap its backward."""
        self._boundary = is_boundary
        self._boundary_of_this_step = True

    def _surely_last(self):
        """Who sets the boundary may do it after forward(): what was said in an earlier step says nothing."""
        if self._boundary is None:
            return self._reduces_each and self.is_gradient_accumulation_boundary()
        return self._boundary and self._boundary_of_this_step

    @contextlib.contextmanager
    def no_sync(self):
        """When gradients are reduced is the config's (zero_core.gradient_sync); the results are the same."""
        yield

    def zero_grad(self, set_to_none=True):
        """Forgets the gradients of this step's backward passes so far, on all ranks: after step() there are none. A
        forward pass that waits for its backward stays. Setting all p.grad to None (zero_grad() of the model or of
        torch's optimizer) does the same, at the next call. Collective where there is something to forget."""
        with self._guarded("zero_grad"):
            if self.native.drop_gradients() and self._accumulation > 1 and not self._said_dropped:
                self._said_dropped = True
                if self._ranks.rank == 0:
                    print("zero: zero_grad() was called among the micro steps of a step, whose gradients so far are "
                          "forgotten", flush=True)

    # Figures.

    def get_lr(self):
        """Of each group, in the next step."""
        return [] if self.optimizer is None else self.optimizer.rates()

    def get_mom(self):
        groups = [] if self.optimizer is None else self.optimizer.param_groups
        return [group.get("betas", group.get("momentum")) for group in groups]

    def get_global_grad_norm(self):
        return None if self._result is None else self._result.grad_norm

    def was_step_applied(self):
        return self._result is not None and not self._result.skipped

    @property
    def last_step(self):
        """The last step's loss over ranks and micro steps, its norm, rate and scale; None before the first."""
        return self._result

    @property
    def config(self):
        """The config as a dict: what the program gave, or else what its file or text says."""
        return self._config_source.as_dict()

    def describe_config(self):
        """The values that act, one in each line, as `zero config explain` prints them."""
        return self.native.describe_config()

    @property
    def device(self):
        return torch.device("cpu") if self._ranks.gpu < 0 else torch.device("cuda", self._ranks.gpu)

    @property
    def global_rank(self):
        return self._ranks.rank

    @property
    def local_rank(self):
        return self._ranks.local_rank

    @property
    def world_size(self):
        return self._ranks.size

    @property
    def global_samples(self):
        return self.global_steps * self._global

    def train_batch_size(self):
        return self._global

    def train_micro_batch_size_per_gpu(self):
        return self._micro

    def gradient_accumulation_steps(self):
        return self._accumulation

    def zero_optimization_stage(self):
        return self._settings.stage

    def zero_optimization(self):
        return self.zero_optimization_stage() > 0

    def fp16_enabled(self):
        return self._settings.fp16

    def bfloat16_enabled(self):
        return self._settings.bf16

    def gradient_clipping(self):
        return self._settings.gradient_clipping

    def steps_per_print(self):
        return self._settings.steps_per_print

    def memory_table(self):
        return self.native.memory_table()

    def digest(self):
        """A hash of all weights, master weights and optimizer states, whatever the stage."""
        with self._guarded("digest", settles=True):
            return self.native.digest()

    # Weights and checkpoints.

    def name_of(self, parameter):
        return self._names[id(parameter)]

    def read(self, parameter, what="value"):
        """The whole of "value", "grad", "master" or an optimizer's state ("exp_avg", ...) as fp32. Collective. Between
        backward() and step() a gradient is that of the micro steps so far, averaged over ranks and micro steps and
        without a loss scale; afterwards that of the last step."""
        if not is_in_engine(parameter):
            return self._read_bytes(parameter, what)
        with self._guarded("read", settles=True):
            if what == "grad":
                gradient = read_gradient(self, parameter)
                return self.given_gradients.over(self.name_of(parameter), gradient, self.native.drops())
            return self.native.read(self.name_of(parameter), what, list(parameter.shape)).to(parameter.device)

    def _read_bytes(self, parameter, what):
        if what != "value":
            raise _native.UsageError(f"parameter {self.name_of(parameter)} holds bytes and is frozen: it has no {what}")
        return parameter.detach().clone()

    def write(self, parameter, values):
        """Gives a parameter other values, which are equal on all ranks. Collective."""
        if not is_in_engine(parameter):
            parameter.data.copy_(values)
            return
        with self._guarded("write", settles=True):
            self.native.write(self.name_of(parameter), values)

    def save_checkpoint(self, save_dir, tag=None, client_state=None, save_latest=True,
                        exclude_frozen_parameters=False):
        """Any stage and number of ranks loads it; without save_latest, by its tag alone. Under
        checkpoint.writer.decoupled it returns before it is written: later steps, the next save or load and the
        engine's end finish it, and raise what went wrong. Collective."""
        save_dir, tag = str(save_dir), checkpoints.text_of(tag, f"global_step{self.global_steps}")
        state = {"global_steps": self.global_steps, "micro_steps": self.micro_steps,
                 "skipped_steps": self.skipped_steps, "client_state": {} if client_state is None else client_state,
                 "param_groups": self.optimizer.groups_to_save() if self.optimizer is not None else [],
                 "lr_scheduler": self.lr_scheduler.state_dict() if self.lr_scheduler is not None else None}
        root = self._ranks.rank == 0
        if root and (notice := self._buffers_of_model.notice_on_save()):
            print(f"zero: {notice}", flush=True)
        with self._guarded("save_checkpoint", settles=True):
            state = checkpoints.bytes_of(state, self._ranks)
            self.native.finish_save()
            # What changes behind the commit is known after it alone.
            waits = self.native.saves_in_background() and (
                not save_latest or checkpoints.is_listed(save_dir, tag, self._ranks))
            latest = checkpoints.before_save(save_dir, tag, save_latest, self._ranks)
            saved = self.native.save(save_dir, tag, state, checkpoints.random_states(self.device),
                                     exclude_frozen_parameters, waits)
            if root and saved:
                checkpoints.after_save(save_dir, tag, save_latest, latest)
            if not save_latest:
                self._ranks.sum(0.0)  # no rank goes on before "latest" is what it was
            if saved:
                self._saved_at = self.global_steps
            return saved

    def load_checkpoint(self, load_dir, tag=None, load_module_strict=True, load_optimizer_states=True,
                        load_lr_scheduler_states=True, load_module_only=False, custom_load_fn=None):
        """The newest valid checkpoint, or the one with the tag. Returns (path, client state), or (None, None)
        where there is none."""
        if not load_optimizer_states or load_module_only or custom_load_fn is not None:
            raise _native.UsageError("load_checkpoint loads all of a checkpoint; for weights alone there is "
                                     "load_weights(), which reads safetensors")
        tag = checkpoints.text_of(tag, None)
        with self._guarded("load_checkpoint", settles=True):
            self.native.drop_gradients()
            self.native.finish_save()
            if tag is None:
                tag = checkpoints.tag_to_load(str(load_dir), self._ranks)
            resumed = self.native.resume(str(load_dir), tag) if tag is not None else None
        if resumed is None:
            return None, None
        state = checkpoints.state_of(resumed)
        self.global_steps = state.get("global_steps", resumed.step)
        self.micro_steps = state.get("micro_steps", self.global_steps * self._accumulation)
        self.skipped_steps = state.get("skipped_steps", 0)
        if self.optimizer is not None:
            if "param_groups" in state:
                self.optimizer.load_groups(state["param_groups"])
            self.optimizer.follow(self.native)
        if load_lr_scheduler_states and state.get("lr_scheduler") and self.lr_scheduler is not None:
            self.lr_scheduler.load_state_dict(state["lr_scheduler"])
        self._without_values, self._slices = set(), {}
        self._saved_at = self.global_steps
        checkpoints.restore_random(resumed, self._ranks, self.device)
        self.loaded_checkpoint_tag = resumed.tag
        return f"{load_dir}/{resumed.tag}", state.get("client_state", {})

    def take_values(self, without_values, slices):
        """At the start: names of the parameters without values, and what zero.Init constructed. Collective."""
        self._without_values, self._slices = without_values, slices
        if slices and not without_values:
            self._fill(slices)

    def _fill(self, names):
        """Parameters that have no values in the native engine get those of the module. Collective."""
        self.native.initialize_rest()
        slices, self._slices = self._slices, {}
        for name, (parameter, own) in slices.items():
            if name in names:
                self.write(parameter, construction.whole_values(parameter, own))
            own.part = None

    def initialize_rest(self, fill):
        """`fill(name, tensor)` gives its values to each parameter that has none: the module was constructed on the meta
        device, and a file that load_weights() has read lacks it. Rank 0's values are taken. Collective."""
        names, self._without_values = self._without_values, set()
        self._fill(self._slices)
        for name, parameter in self.module.named_parameters():
            if name in names:
                values = torch.zeros(parameter.shape)
                with torch.no_grad():
                    fill(name, values)
                self._ranks.broadcast(values)
                self.write(parameter, values)

    def load_weights(self, path, allow_missing="", name_in_file=None):
        """Safetensors, of which each rank reads its own elements. Returns the names that the file lacks, which keep
        the values of the module.

        `name_in_file`: a function from a parameter's name to its name in the file, or a dict of texts and what stands
        for them there; by default, names of a model with adapters of peft are found in a file without them."""
        names = weights.names_in_file(self.module, path, name_in_file, self._ranks)
        with self._guarded("load_weights", settles=True):
            missing = self.native.load_weights(str(path), allow_missing, names)
        was_incomplete = bool(self._without_values)
        self._without_values &= set(missing)
        if was_incomplete and not self._without_values:
            self._fill(missing)
        return missing

    def export_model(self, directory, max_file_bytes=0):
        """Safetensors of Hugging Face, with one unit in memory at a time. Collective."""
        with self._guarded("export_model", settles=True):
            self.native.export_model(str(directory), max_file_bytes)

    def zero_gather_16bit_weights_on_model_save(self):
        """Any stage can: stage3_gather_16bit_weights_on_model_save need not be set."""
        return True

    def module_state_dict(self, exclude_frozen_parameters=False):
        """All values in the compute dtype on each rank. Collective."""
        return weights.gathered(self, True, exclude_frozen_parameters)

    def _zero3_consolidated_16bit_state_dict(self, exclude_frozen_parameters=False):
        """The same on rank 0, and None on the others."""
        return weights.gathered(self, self._ranks.rank == 0, exclude_frozen_parameters)

    def save_16bit_model(self, save_dir, save_filename="pytorch_model.bin", exclude_frozen_parameters=False):
        state = self._zero3_consolidated_16bit_state_dict(exclude_frozen_parameters)
        if state is not None:
            os.makedirs(save_dir, exist_ok=True)
            torch.save(state, os.path.join(save_dir, save_filename))
        return True

    def deepspeed_io(self, dataset, batch_size=None, collate_fn=None):
        """This rank's part of a dataset, in micro batches."""
        sampler = None
        if not isinstance(dataset, torch.utils.data.IterableDataset):
            sampler = torch.utils.data.DistributedSampler(
                dataset, num_replicas=self._ranks.size, rank=self._ranks.rank, shuffle=True)
        return torch.utils.data.DataLoader(dataset, batch_size=batch_size or self._micro, sampler=sampler,
                                           collate_fn=collate_fn, drop_last=True)

    def save_fp16_model(self, save_dir, save_filename="pytorch_model.bin"):
        return self.save_16bit_model(save_dir, save_filename)

    def empty_partition_cache(self):
        """Nothing stays gathered between passes."""

    @property
    def dp_world_size(self):
        return self._ranks.size

    @property
    def mp_world_size(self):
        return 1

    def destroy(self):
        """Ends the engine, and with it the parameters' memory. Collective; the end of the script does it too."""
        try:
            if self._failure is None:
                with self._guarded("destroy"):
                    self._failure = "the engine was destroyed"
        finally:
            self.native = self._evaluation = None

    @contextlib.contextmanager
    def _guarded(self, what, evaluates=False, settles=False):
        """`settles`: a collective call other than a pass or a step, before which what is open closes."""
        if self._successor is not None and what != "destroy":
            raise _native.UsageError(f"engine.{what}: the model was given to zerocore.initialize() again, and has another "
                                     "engine since: use that one")
        if self._failure is not None:
            raise _native.UsageError(
                f"{what} was called after an earlier call had failed, and the ranks may differ since; end the job "
                f"and resume from a checkpoint. The failure was: {self._failure}")
        try:
            if not evaluates:
                self._evaluation.end()
            if settles:
                self._buffers_of_model.take_back()
                self.native.come_to_rest()
            yield
        except BaseException as error:
            if self._stays_sound(what, error):
                raise
            self._failure = f"{type(error).__name__}: {error}"
            self._evaluation.drop()
            if self.native is None:
                raise
            self.native.abandon()
            try:
                self.native.rethrow()  # what went wrong before torch noticed
            except _native.Error as cause:
                self._add_call(cause, what)
                raise
            self._add_call(error, what)
            raise

    def _add_call(self, error, what):
        """The library names its own calls, and the script has called this one."""
        call = f"Rank {self._ranks.rank} was in engine.{what}() of {type(self.module).__name__}"
        if isinstance(error, _native.DisagreementError):
            error.args = (f"{error}. {call}",)
        elif isinstance(error, _native.PeerFailed):
            error.call = call

    def _stays_sound(self, what, error):
        """A call that all ranks refuse alike, before it has changed anything, leaves the engine as it was."""
        ends = (_native.PeerFailed, _native.DisagreementError, _native.StalledError)
        return (what not in ("forward", "backward") and isinstance(error, _native.Error) and not isinstance(error, ends)
                and self.native is not None and not self.native.failed())

    def __deepcopy__(self, memo):
        raise _native.UsageError("an engine cannot be copied: copy engine.module, at stage 3 inside of "
                                 "zero.GatheredParameters(engine.parameters())")

    def __reduce_ex__(self, protocol):
        raise _native.UsageError("an engine cannot be pickled: save engine.module or its state_dict(), at stage 3 inside "
                                 "of zero.GatheredParameters(engine.parameters()), or call save_checkpoint()")
