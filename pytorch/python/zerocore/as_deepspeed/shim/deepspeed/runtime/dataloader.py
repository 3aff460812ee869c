from .._missing import refuse_missing

__getattr__ = refuse_missing(__name__)


class RepeatingLoader:
    """Restarts a loader whenever it ends."""

    def __init__(self, loader):
        self.loader = loader
        self.data_iter = iter(loader)

    def __iter__(self):
        return self

    def __next__(self):
        try:
            return next(self.data_iter)
        except StopIteration:
            self.data_iter = iter(self.loader)
            return next(self.data_iter)
