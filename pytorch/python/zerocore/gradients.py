"""Gradients that the program sets between backward() and step(), in place of what backward has brought."""

from . import _native


class GivenGradients:
    """Of one engine: averaged over ranks and micro steps, without a loss scale, whole on each rank. `drops` says how often
    the native engine has forgotten its gradients, by zero_grad() of any kind, which forgets what was given too."""

    def __init__(self):
        self._given = {}  # by the parameter's name: (the parameter, its gradient before, what was given for it)
        self._drops = 0  # when the first was given

    def give(self, parameter, name, before, values, drops):
        """`before`: the gradient of the micro steps so far."""
        self._forget(drops)
        self._given[name] = parameter, before, values

    def over(self, name, gradient, drops):
        """The gradient with what was given in its place; what later micro steps have brought is added to that."""
        self._forget(drops)
        if name not in self._given:
            return gradient
        _, before, values = self._given[name]
        return values + (gradient - before)

    def end_step(self, engine):
        """{name: gradient} for the step that comes. Collective if there are any."""
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
