"""Evaluation passes of a model whose parameters rest as shards, with any number of batches on each rank."""

import contextlib

from . import _native

_DIFFERENT_CALLS = 12  # the exit codes of DisagreementError and StalledError, which a PeerFailed carries on
_NO_ANSWER = 18
_open = []  # in the order in which all ranks have opened them


def end_all():
    """Collective. Before ranks make another engine or leave, also where the program has dropped the engine."""
    for evaluation in list(_open):
        evaluation.end()


class Evaluation:
    """All ranks gather parameters in each pass. A rank that has no more batches takes part in the passes of the
    others, in end(), until none of them has another one. Where parameters rest whole, nothing is exchanged."""

    def __init__(self, native, ranks, model_name, shares_passes):
        self._native = native
        self._ranks = ranks
        self._model_name = model_name
        self._shares_passes = shares_passes

    def begin(self):
        if self._shares_passes and self not in _open:
            _open.append(self)

    def begin_pass(self):
        self.begin()
        if self._shares_passes:
            with self._explained():
                self._ranks.sum(1.0)

    def end(self):
        """Collective where parameters rest as shards."""
        if self not in _open:
            return
        while self._ranks.sum(0.0) > 0:
            self._native.join_evaluation()
        self.drop()

    def drop(self):
        """After a failure, where the ranks may differ."""
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
