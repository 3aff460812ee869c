"""Gradients that the program sets between backward() and step(); they replace those of backward."""

from . import _native


class GivenGradients:
    """The gradients set for one engine: averaged over ranks and micro-batches, without a loss scale, whole on each rank.
    Any kind of zero_grad() also drops these gradients: `drops` is the number of times that the native engine has dropped
    its own, and the gradients here are forgotten when it changes."""

    def __init__(self):
        self._given = {}  # by the parameter's name: (the parameter, its gradient before, the gradient set)
        self._drops = 0  # its value when the first gradient was set

    def give(self, parameter, name, before, values, drops):
        """Sets a gradient. `before` is the gradient of the micro-batches so far."""
        self._forget(drops)
        self._given[name] = parameter, before, values

    def over(self, name, gradient, drops):
        """Returns the gradient set for the parameter plus those of later micro-batches; without one, `gradient`."""
        self._forget(drops)
        if name not in self._given:
            return gradient
        _, before, values = self._given[name]
        return values + (gradient - before)

    def end_step(self, engine):
        """Returns {name: gradient} for the next step. Collective if there are any."""
        given = {name: engine.read(parameter, "grad").cpu() for name, (parameter, *_) in self._given.items()}
        given = {name: gradient for name, gradient in given.items() if name in self._given}
        self._given = {}
        return given

    def _forget(self, drops):
        if drops != self._drops:
            self._given, self._drops = {}, drops


def read_gradient(engine, parameter):
    """Returns the engine's gradient of the micro steps so far. Two reads return the same bits, so the difference of two
    reads is exactly the gradient of the micro steps between them."""
    return engine.native.read_gradient(engine.name_of(parameter), list(parameter.shape),
                                       engine._mean_over()).to(parameter.device)


def set_gradient(engine, parameter, values):
    """Sets the gradient to `values`, an fp32 tensor of the parameter's shape that is equal on all ranks. Collective.
    Raises UsageError before the first backward() of a step."""
    with engine._guarded("safe_set_full_grad", settles=True):
        name = engine.name_of(parameter)
        if not engine.native.has_gradients():
            raise _native.UsageError(f"safe_set_full_grad: parameter {name} has no gradient yet: call it between "
                                     "engine.backward() and engine.step()")
        before = read_gradient(engine, parameter)
        engine.given_gradients.give(parameter, name, before, values.to(parameter.device), engine.native.drops())


def set_state(engine, parameter, state, values):
    """Sets a state of the optimizer, with `values` as for set_gradient(). Collective. Raises UsageError for a name that
    is not a state."""
    if state in ("value", "master", "grad"):
        raise _native.UsageError(f"safe_set_full_optimizer_state: {state} is not a state of the optimizer: call "
                                 "safe_set_full_fp32_param() or safe_set_full_grad()")
    with engine._guarded("safe_set_full_optimizer_state", settles=True):
        engine.native.write_state(engine.name_of(parameter), state, values)
