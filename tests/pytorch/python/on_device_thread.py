"""Importing this module makes backward passes run on another thread than the script's, as on GPUs."""

import functools

import device_thread
import torch


class _Engine:
    def __init__(self, own):
        self._own = own

    def run_backward(self, *args, **kwargs):
        return device_thread.run(functools.partial(self._own.run_backward, *args, **kwargs))

    def __getattr__(self, name):
        return getattr(self._own, name)


torch.autograd.Variable._execution_engine = _Engine(torch.autograd.Variable._execution_engine)
