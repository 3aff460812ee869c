"""Evaluation passes of a model with sharded parameters, with any number of batches on each rank."""

import contextlib

from . import _native

_DIFFERENT_CALLS = 12  # the exit codes of DisagreementError and StalledError, which a PeerFailed passes on
_NO_ANSWER = 18
_open = []  # in the order in which all ranks opened them


def end_all():
    """Ends all open evaluations. Call it before ranks make another engine or leave, even if the program has dropped
    the engine. Collective."""
    for evaluation in list(_open):
        evaluation.end()


class Evaluation:
    """With sharded parameters all ranks gather in each pass. A rank without further batches serves the passes of the
    others in end(), until none has another one. With whole parameters nothing is exchanged."""

    def __init__(self, native, ranks, model_name, shares_passes):
        self._native = native
        self._ranks = ranks
        self._model_name = model_name
        self.shares_passes = shares_passes
        self._settled = False

    def begin(self):
        """Opens the evaluation, whose end all ranks reach together. Nothing is exchanged yet."""
        if self.shares_passes and self not in _open:
            _open.append(self)
            self._settled = False

    def begin_pass(self):
        """Reports to the other ranks that this one has another pass, which they then take part in. Collective if
        parameters are sharded; raises with advice if a rank has ended its batches."""
        self.begin()
        if self.shares_passes:
            with self._explained():
                self._settle()
                self._ranks.sum(1.0)

    def end(self):
        """Ends the evaluation. Collective if parameters are sharded."""
        if self not in _open:
            return
        self._settle()
        while self._ranks.sum(0.0) > 0:
            self._native.join_evaluation()
        self.drop()

    def _settle(self):
        """Ends the scopes of a training pass before the first exchange."""
        if not self._settled:
            self._native.settle()
            self._settled = True

    def drop(self):
        """Forgets the evaluation after a failure, because the ranks may differ and no collective is safe."""
        if self in _open:
            _open.remove(self)

    @contextlib.contextmanager
    def _explained(self):
        try:
            yield
        except _native.Error as error:
            if getattr(error, "exit_code", None) in (_DIFFERENT_CALLS, _NO_ANSWER):
                error.args = (f"{error}. {self._model_name} is evaluated with its parameters sharded, so that all ranks "
                              f"take part in each forward pass, and rank {self._ranks.rank} of {self._ranks.size} has "
                              "another batch: on a rank that has no more of them, call engine.train() directly after "
                              "the loop, which takes part in the passes of the others; or give all ranks as many "
                              "batches (drop_last=True, generate(synced_gpus=True))",)
            raise
