"""The guard around an engine's calls: after a failure it refuses them."""

import contextlib
import weakref

from . import _native, buffers


class Guard:
    """Records the failure that has ended an engine. `failure`: its text, or None."""

    def __init__(self, engine):
        self._engine = weakref.ref(engine)
        self.failure = None

    @contextlib.contextmanager
    def around(self, what, evaluates=False, settles=False):
        """Wraps a call: raises after a failure, and records one. `settles` is for a collective call other than a
        pass or a step: open passes end first."""
        engine = self._engine()
        if engine._successor is not None and what != "destroy":
            raise _native.UsageError(f"engine.{what}: the model was given to zerocore.initialize() again, and has another "
                                     "engine since: use that one")
        if self.failure is not None:
            raise _native.UsageError(
                f"{what} was called after an earlier call had failed, and the ranks may differ since; end the job "
                f"and resume from a checkpoint. The failure was: {self.failure}")
        try:
            if not evaluates:
                engine._evaluation.end()
            if settles:
                engine._buffers_of_model.take_back()
                engine.native.come_to_rest()
            yield
        except BaseException as error:
            if self._stays_sound(what, error):
                raise
            self.failure = f"{type(error).__name__}: {error}"
            engine._evaluation.drop()
            if engine.native is None:
                raise
            engine.native.abandon()
            try:
                engine.native.rethrow()  # the engine's own error, which torch's may hide
            except _native.Error as cause:
                self._add_call(cause, what)
                raise
            self._add_call(error, what)
            buffers.add_advice(error, engine.module)
            raise

    def _add_call(self, error, what):
        """Adds the script's call to an error that names the library's."""
        engine = self._engine()
        call = f"Rank {engine._ranks.rank} was in engine.{what}() of {type(engine.module).__name__}"
        if isinstance(error, _native.DisagreementError):
            error.args = (f"{error}. {call}",)
        elif isinstance(error, _native.PeerFailed):
            error.call = call

    def _stays_sound(self, what, error):
        """Returns whether the engine stays usable: all ranks have refused the call alike, before it changed
        anything."""
        ends = (_native.PeerFailed, _native.DisagreementError, _native.StalledError)
        native = self._engine().native
        return (what not in ("forward", "backward") and isinstance(error, _native.Error) and not isinstance(error, ends)
                and native is not None and not native.failed())
