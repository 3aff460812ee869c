"""The parts of an engine inside a model: passes in place of forward(), and links from parameters. A copy of the
model, by deepcopy() or pickle, is a plain module without them."""

import copy
import functools
import types
import weakref

import torch
from torch import nn
from torch.nn.utils import parametrize

from . import _native
from .compiled import refuse_compiled
from .errors import AssertedUsage
from .parts import is_split, named_parts, parts_of


class Link:
    """A link from a parameter to its engine. Calling it returns the engine, or None after its end."""

    def __init__(self, engine):
        self._reference = weakref.ref(engine)

    def __call__(self):
        engine = self._reference()
        return engine if engine is not None and engine.native is not None else None

    def is_to(self, engine):
        """Whether it is a link to this engine, also during its end."""
        return self._reference() in (engine, None)

    def __deepcopy__(self, memo):
        return None

    def __reduce__(self):
        return _nothing, ()


def _nothing():
    return None


class PlainState:
    """A parameter's __getstate__(), which pickle and torch.save() call. It leaves out the engine's attributes, so
    that a copy is a plain parameter and needs no code to load."""

    _OURS = {"__getstate__", "_zerocore_engine", "_zerocore_bytes", "_zerocore_frozen", "ds_id", "ds_shape", "ds_numel",
             "ds_status", "ds_tensor", "ds_persist", "is_shared", "partition_numel", "_zerocore_lost", "_zerocore_slice"}

    def __init__(self, parameter):
        self._parameter = weakref.ref(parameter)

    def __call__(self):
        parameter = self._parameter()
        state_of = getattr(type(parameter), "__getstate__", None)  # bitsandbytes' codes have one, which their copies need
        state = vars(parameter) if state_of in (None, getattr(object, "__getstate__", None)) else state_of(parameter)
        return {key: value for key, value in state.items() if key not in self._OURS}

    def __deepcopy__(self, memo):
        return dict  # copies of tensors that are no nn.Parameter have all attributes, and this one returns {} there


class Forward:
    """Takes the place of a module's forward(), in its attributes. A copy of the module has its own forward()."""

    def __init__(self, module):
        own = module.__dict__.get("forward")  # the forward() that the program has assigned, if any
        while isinstance(own, (Pass, type(self))):  # that of an engine that had the module before
            own = own._own
        self._module, self._own = weakref.ref(module), own
        functools.update_wrapper(self, self._call, updated=())
        self.__code__ = getattr(self._call, "__code__", None)  # torch.export reads it before its first call

    @property
    def _call(self):
        """The module's own forward(). That of its class may be another one by now: programs patch classes."""
        if self._own is not None:
            return self._own
        module = self._module()
        kind = type(module)
        found = next(vars(base)["forward"] for base in kind.__mro__ if "forward" in vars(base))
        return found.__get__(module, kind) if hasattr(found, "__get__") else found

    def __deepcopy__(self, memo):
        module = self._module()
        copied = memo.get(id(module))
        if self._own is not None or copied is None:
            return copy.deepcopy(self._own if self._own is not None else self._call, memo)
        return types.MethodType(type(copied).forward, copied)

    def __reduce__(self):
        if self._own is not None:
            return _itself, (self._own,)
        return getattr, (self._module(), "forward")


class Pass(Forward):
    """The module's forward(), run as a pass of the engine as long as the engine exists. `keeps`: the module keeps the
    engine, which has the only values of sharded parameters."""

    def __init__(self, module, engine, keeps):
        super().__init__(module)
        self._name = type(module).__name__
        self._engine = (lambda: engine) if keeps else weakref.ref(engine)

    def __call__(self, *args, **kwargs):
        refuse_compiled(self._name)
        engine = self._engine()
        return self._call(*args, **kwargs) if engine is None else engine._run(self._call, args, kwargs)

    def remove(self, engine):
        """Gives the module its own forward() again, if it runs as a pass of this engine."""
        module = self._module()
        if self._engine() is not engine or module is None:
            return
        if self._own is None:
            del module.forward
        else:
            module.forward = self._own


class PartPass(Pass):
    """A pass of a part of the model that the script calls outside of the model's forward(), from a method of its own. Inside of
    another pass, of compiled code and of zero.GatheredParameters it is the module's own forward()."""

    def __call__(self, *args, **kwargs):
        engine = None if torch.compiler.is_compiling() else self._engine()
        if engine is None or engine._lent:
            return self._call(*args, **kwargs)
        return engine._run(self._call, args, kwargs)


def _itself(value):
    return value


def make_passes(model, unit_names, engine, keeps):
    """Puts passes into the model and the modules around its units, because generate() of transformers calls an
    encoder directly, and into the other parts outside of units that have parameters."""
    paths = {""}
    for name in unit_names:
        parts = name.split(".")
        paths.update(".".join(parts[:count]) for count in range(1, len(parts)))
    for path in sorted(paths):
        module = model.get_submodule(path)
        if not isinstance(module, (nn.ModuleList, nn.ModuleDict)):
            module.forward = Pass(module, engine, keeps)
    modules = dict(list(model.named_modules())[1:])
    for module in _parts_outside(model, {modules[name] for name in unit_names if name in modules}):
        if not isinstance(module.__dict__.get("forward"), Pass) and any(True for _ in module.parameters(recurse=False)):
            module.forward = PartPass(module, engine, keeps)


def _parts_outside(module, units):
    """Returns the modules below this one that are in none of the units. A parametrization runs whenever its parameter is read."""
    for child in module.children():
        if child not in units and not isinstance(child, (torch.jit.ScriptModule, parametrize.ParametrizationList)):
            yield child
            yield from _parts_outside(child, units)


def remove(engine):
    """Makes a model plain again at the end of its engine: without passes and the engine's attributes of parameters.
    What a later engine has put there stays."""
    for module in engine.module.modules():
        forward = module.__dict__.get("forward")
        if isinstance(forward, Pass):
            forward.remove(engine)
    for parameter in engine._tensors:
        link = vars(parameter).get("_zerocore_engine")
        if link is not None and link.is_to(engine):
            lost = hasattr(parameter, "ds_tensor")  # it was sharded, by describe()
            for name in PlainState._OURS - {"_zerocore_frozen"}:  # for thaw()
                vars(parameter).pop(name, None)
            if lost:
                parameter._zerocore_lost = True


def has_pass(module):
    """Returns whether forward() is the one that make_passes() has put in, not one that the program has put there since, as
    Lightning does for the steps of a module."""
    return isinstance(module.__dict__.get("forward"), Pass)


class Tree:
    """The model's parameters and modules at their declaration, to notice a later change."""

    def __init__(self, model):
        self._model = model
        self._names = {id(parameter): name for name, parameter in model.named_parameters()}
        self._note_members()

    def _note_members(self):
        holders = [held for module in self._model.modules() for held in (module._parameters, module._modules)]
        self._members = [(held, name, member) for held in holders for name, member in held.items()]
        self._sizes = [(held, len(held)) for held in holders]

    def _has_changed(self):
        return (any(held.get(name) is not member for held, name, member in self._members)
                or any(len(held) != count for held, count in self._sizes))

    def check(self, model_name):
        """Raises UsageError if a parameter was replaced or added since zerocore.initialize()."""
        if not self._has_changed():
            return
        for held, name, member in self._members:
            if id(member) in self._names and held.get(name) is not member:
                raise _native.UsageError(
                    f"parameter {self._names[id(member)]} of {model_name} was replaced by another tensor "
                    "after zerocore.initialize() (torch.func.functional_call, or an assignment to the module): the "
                    "engine has its own values, so call the module itself, and give it other values by "
                    "zero.GatheredParameters or engine.write()")
        for name, parameter in self._model.named_parameters():
            if id(parameter) not in self._names:
                raise _native.UsageError(
                    f"parameter {name} was added to {model_name} after zerocore.initialize(), and would never be "
                    "trained: add it before (adapters too), and make the engine then")
        self._note_members()


def refuse_no_loss(loss):
    """Raises UsageError if `loss` is not a tensor with one element that requires a gradient."""
    if not isinstance(loss, torch.Tensor):
        raise AssertedUsage(f"engine.backward: the loss is a {type(loss).__name__}; expected a tensor with one number "
                            "(of an output of transformers, its .loss)")
    if loss.numel() != 1:
        raise AssertedUsage(f"engine.backward: the loss has the shape {tuple(loss.shape)}; expected one number, a scalar tensor: "
                            "take its mean()")
    if not loss.requires_grad:
        raise AssertedUsage("engine.backward: the loss does not depend on anything that is trained: it was made under "
                            "torch.no_grad(), from a detached output, or as a new tensor; for a batch that shall count "
                            "nothing, multiply the loss by 0")


def supersede(parameter, engine):
    """Marks an engine that had the parameter before as replaced."""
    before = engine_of(parameter)
    if before is not None and before is not engine:
        before._successor = weakref.ref(engine)


def engine_of(parameter):
    """Returns the engine that has the parameter, or None."""
    link = getattr(parameter, "_zerocore_engine", None)
    if link is None and is_split(parameter):
        return next((engine_of(tensor) for _, tensor in parts_of(parameter)), None)
    return link() if link is not None else None


def refuse_shared(model):
    """Raises UsageError if this model shares some parameters, but not all, with another engine's model, or if an
    engine has ended with a parameter's values."""
    mine = {id(parameter) for parameter in model.parameters()}
    for name, parameter in named_parts(model).items():
        engine = engine_of(parameter)
        if engine is None or engine._successor is not None:
            _refuse_lost(name, parameter)
            continue
        if any(id(other) not in mine for other in engine.module.parameters()):
            raise _native.UsageError(
                f"zerocore.initialize: parameter {name} is a parameter of another engine's {type(engine.module).__name__}, "
                "too, and one engine trains it: give both models to one engine (an nn.ModuleDict, or a module that calls "
                "both), or each a copy of its own; engine.destroy() ends the other one")


def engines_before(model):
    """Returns the engines that have the model's parameters, in the order in which they were made: the model's next
    engine takes the values from them. Collective if there are some."""
    engines = {engine._number: engine for engine in map(engine_of, model.parameters()) if engine is not None}
    for _, engine in sorted(engines.items()):
        if engine._lent:
            raise _native.UsageError("zerocore.initialize: parameters are gathered by zero.GatheredParameters; leave the block first")
        if engine._guard.failure is None and engine._successor is None:
            with engine._guarded("initialize", settles=True):
                pass
    return [engine for _, engine in sorted(engines.items())]


def _refuse_lost(name, parameter):
    """Raises UsageError for a parameter without values whose engine has ended."""
    if hasattr(parameter, "_zerocore_lost") and _native.is_at_rest(parameter):
        raise _native.UsageError(
            f"zerocore.initialize: parameter {name} has no values: its engine has ended, and the ranks held slices of it "
            "there. Save the values before an engine ends (engine.save_checkpoint(), engine.save_16bit_model(), or a copy "
            "inside of zero.GatheredParameters), construct the model anew, and load them")
