"""Gradients that the program sets between backward() and step(), which replace those of backward."""

from . import _native


class GivenGradients:
    """The gradients set for one engine: averaged over ranks and micro-batches, without a loss scale, whole on each rank.
    `drops` counts the times that the native engine has dropped its gradients, by zero_grad() of any kind, which also drops
    the gradients set here."""

    def __init__(self):
        self._given = {}  # by the parameter's name: (the parameter, its gradient before, the gradient set)
        self._drops = 0  # when the first was given

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
    """The engine's, of the micro steps so far. Read twice, it has the same bits, by which what has come between is found."""
    return engine.native.read_gradient(engine.name_of(parameter), list(parameter.shape),
                                       engine._mean_over()).to(parameter.device)


def set_gradient(engine, parameter, values):
    """`values`: equal on all ranks, of the parameter's shape, fp32. Collective."""
    with engine._guarded("safe_set_full_grad", settles=True):
        name = engine.name_of(parameter)
        if not engine.native.has_gradients():
            raise _native.UsageError(f"safe_set_full_grad: parameter {name} has no gradient yet: call it between "
                                     "engine.backward() and engine.step()")
        before = read_gradient(engine, parameter)
        engine.given_gradients.give(parameter, name, before, values.to(parameter.device), engine.native.drops())


def set_state(engine, parameter, state, values):
    """As set_gradient(), for a state of the optimizer."""
    if state in ("value", "master", "grad"):
        raise _native.UsageError(f"safe_set_full_optimizer_state: {state} is no state of the optimizer: call "
                                 "safe_set_full_fp32_param() or safe_set_full_grad()")
    with engine._guarded("safe_set_full_optimizer_state", settles=True):
        engine.native.write_state(engine.name_of(parameter), state, values)
