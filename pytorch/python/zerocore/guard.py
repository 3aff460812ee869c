"""The guard around an engine's calls: one thread at a time; after an exception inside of a pass the pass is forgotten,
and after a failure that ends the engine its calls are refused."""

import contextlib
import threading
import weakref

from . import _native, buffers

_BY_TASKS = ("train_batch", "eval_batch")  # of a pipeline, whose other stages continue without this one
_LASTING = (_native.PeerFailed, _native.DisagreementError, _native.StalledError)


class Guard:
    """Wraps an engine's calls. `failure`: the text of the failure that has ended the engine, or None."""

    def __init__(self, engine):
        self._engine = weakref.ref(engine)
        self.failure = None
        self._backward_failed = False
        self._turn = threading.RLock()
        self._inside = None  # the call that has the turn, and its thread

    @contextlib.contextmanager
    def around(self, what, evaluates=False, settles=False):
        """Wraps a call: raises after a failure, and records one. `settles` is for a collective call other than a
        pass or a step: open passes end first."""
        engine = self._engine()
        if engine._successor is not None and what != "destroy":
            raise _native.UsageError(f"engine.{what}: the model was given to zerocore.initialize() again, and has another "
                                     "engine since: use that one")
        self._refuse_after_failure(what)
        with self._one_thread(what):
            try:
                if self._backward_failed and what != "destroy":  # which a rank may reach alone
                    self._forget_backward()
                if not evaluates:
                    engine._evaluation.end()
                if engine._open_stream() is not None and what != "stream_weights":
                    engine._open_stream().close(what)
                if settles:
                    engine._buffers_of_model.take_back()
                    engine.native.reshard()
                yield
            except BaseException as error:
                self._note(what, error, evaluates)
                raise

    def _refuse_after_failure(self, what):
        if self.failure is not None:
            raise _native.UsageError(
                f"{what} was called after an earlier call had failed, and the ranks may differ since; end the job and resume "
                f"from a checkpoint. The failure was: {self.failure}")

    @contextlib.contextmanager
    def _one_thread(self, what):
        if not self._turn.acquire(blocking=False):
            raise _native.UsageError(
                f"engine.{what} was called on thread {threading.current_thread().name} during engine.{self._inside[0]} on "
                f"thread {self._inside[1].name}: an engine's calls belong on one thread at a time, in one order on all "
                "ranks; a threading.Lock around them keeps that")
        before, self._inside = self._inside, (what, threading.current_thread())
        try:
            yield
        finally:
            self._inside = before
            self._turn.release()

    def has_turn(self):
        """Returns whether a call runs on this thread."""
        inside = self._inside
        return inside is not None and inside[1] is threading.current_thread()

    def _forget_backward(self):
        """Drops what a backward pass that has failed has added, and with it all gradients of its step. Collective."""
        engine, self._backward_failed = self._engine(), False
        for parameter in engine.module.parameters():
            if parameter.requires_grad:
                parameter.grad = None
        engine.native.post_backward()
        engine.native.drop_gradients()
        earlier = (engine.micro_steps - engine._counted_from) % engine.gradient_accumulation_steps()
        engine.micro_steps -= earlier
        if earlier and engine.global_rank == 0:
            print(f"zero: a backward pass has failed, so the gradients of this step's {earlier} earlier micro-batches are "
                  "forgotten too, and the step begins again", flush=True)

    def _note(self, what, error, evaluates):
        """Called for an exception in a call. Raises the engine's own error, which torch's may hide."""
        engine = self._engine()
        native = engine.native
        if native is None or isinstance(error, _LASTING) or native.failed() or what in _BY_TASKS:
            self._end(error)
        elif what in ("forward", "backward") and self._can_forget(evaluates):
            native.abandon()
            self._backward_failed = what == "backward"
        elif not isinstance(error, _native.Error):
            self._end(error)
        if native is None:
            return
        try:
            native.rethrow()
        except _native.Error as cause:
            self._end(cause)  # such as a write inside of the pass, which has changed weights
            self._add_call(cause, what)
            raise cause from None  # torch's own error is one of an operation that went on without it
        self._add_call(error, what)
        if what in ("forward", "backward"):
            buffers.add_advice(error, engine.module)

    def _can_forget(self, evaluates):
        """Returns whether a pass that fails leaves the engine usable. With rank_independent sums are added in the order of
        passes."""
        engine = self._engine()
        return evaluates or not engine.micro_batches.rank_independent

    def _end(self, error):
        self.failure = f"{type(error).__name__}: {error}"
        engine = self._engine()
        engine._evaluation.drop()
        if engine.native is not None:
            engine.native.abandon()

    def _add_call(self, error, what):
        """Adds the script's call to an error that names the library's."""
        engine = self._engine()
        call = f"Rank {engine._ranks.rank} was in engine.{what}() of {type(engine.module).__name__}"
        if isinstance(error, _native.DisagreementError):
            error.args = (f"{error}. {call}",)
        elif isinstance(error, _native.PeerFailed):
            error.call = call
