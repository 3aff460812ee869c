"""The work of a stage: its tasks of a step, in the order of the engine's schedule, and of an evaluation."""

import contextlib
import functools

import torch

from .. import _native
from ..micro_batches import hash_of
from ..passes import refuse_no_loss
from . import messages


class Batches:
    """The micro-batches of a step, each read when a task first needs it and dropped with its last task."""

    def __init__(self, engine, call, iterator, count):
        self._engine, self._call, self._iterator, self.count = engine, call, iterator, count
        self._held, self._read = {}, 0

    def __getitem__(self, micro):
        """Returns a micro-batch; None on a stage that reads none."""
        if self._iterator is None:
            return None
        while micro not in self._held:
            self._held[self._read] = self._next()
            self._read += 1
        return self._held[micro]

    def drop(self, micro):
        self._held.pop(micro, None)

    def mark(self, micro):
        """Returns messages.mark_of() the labels of a step's first micro-batch; None of others, and in evaluations."""
        if micro > 0 or self._call != "train_batch":
            return None
        return messages.mark_of(self._engine.module.labels_of(self[micro]))

    def _next(self):
        engine = self._engine
        try:
            batch = next(self._iterator)
        except StopIteration:
            raise _native.UsageError(
                f"engine.{self._call}: the iterator of rank {engine.global_rank} (stage {engine.stage_id}, data rank "
                f"{engine.grid.get_data_parallel_rank()}) ended before micro-batch {self._read} of the {self.count} that "
                f"{'a step' if self._call == 'train_batch' else 'this call'} has: each rank of each stage needs as many") from None
        batch = batch if engine.batch_fn is None else engine.batch_fn(batch)
        return engine.module.prepared(batch, functools.partial(to_device, engine.device))


def to_device(device, values):
    """Returns the values with their tensors on the device, and lists as tuples."""
    if isinstance(values, torch.Tensor):
        return values.to(device)
    if isinstance(values, (tuple, list)):
        return tuple(to_device(device, each) for each in values)
    return {key: to_device(device, value) for key, value in values.items()} if isinstance(values, dict) else values


class StageTasks:
    """Runs the tasks. Between the units of a stage activations stay torch's tensors, without a graph in common: the backward
    task of a unit begins with the gradients that the next unit's has left."""

    def __init__(self, engine, batches):
        self._engine, self._batches = engine, batches
        self._native, self._model = engine.native, engine.module
        self._units = self._model.own_units
        self._passed, self._kept, self._gradients = {}, {}, {}  # by micro-batch; (micro-batch, unit); micro-batch
        self._marks = {}  # of the first stage's labels, by micro-batch

    def train(self):
        """Runs all tasks of a step."""
        while (task := self._native.next_task()) is not None:
            number, micro, is_forward = task
            unit = self._units[number]
            self._native.open_task()
            with self._told(unit, micro):
                if is_forward:
                    self._pass_on(unit, micro, self._forward(unit, micro))
                elif unit + 1 == len(self._model.units):
                    self._end_with_loss(unit, micro)
                else:
                    self._backward(unit, micro)
            self._native.close()
            if unit == self._units[0] and not is_forward:
                self._batches.drop(micro)

    def evaluate(self, compute_loss):
        """Returns the losses and the outputs of the micro-batches, on the last stage."""
        losses, results = [], []
        for micro in range(self._batches.count):
            self._native.evaluates(True)
            for number, unit in enumerate(self._units):
                self._native.open_forward(number)
                with self._told(unit, micro):
                    outputs = self._forward(unit, micro)
                    if unit + 1 < len(self._model.units):
                        self._pass_on(unit, micro, outputs)
                    else:
                        results.append(self._model.logits_of(outputs))
                        if compute_loss:
                            losses.append(float(self._loss(outputs, micro)))
                self._native.close()
            self._kept.clear()
            self._batches.drop(micro)
        self._native.evaluates(False)
        self._native.end_evaluation()
        return losses, results

    @contextlib.contextmanager
    def _told(self, unit, micro):
        """Adds the place to an error of the program's own code."""
        try:
            yield
        except _native.Error:
            raise
        except Exception as error:
            where = f"in {self._where(unit, micro)} of rank {self._engine.global_rank}"
            if "leaf Variable that requires grad" in str(error):
                where += ("; a unit is given the outputs of the one before as leaves, which its layers may not change in place: use "
                          "operations that are not in place (inplace=False)")
            error.args = (f"{error} ({where})", *error.args[1:]) if error.args else (where,)
            raise

    def _begins_run(self, unit):
        """Whether the unit is given its inputs by another stage, or as the first one by the batch."""
        return unit in self._model.first_units

    def _where(self, unit, micro):
        return f"unit {self._model.units[unit].name}, stage {self._engine.stage_id}, micro-batch {micro}"

    def _forward(self, unit, micro):
        inputs = self._inputs(unit, micro)
        with self._numbers(unit, micro), self._engine._casts():
            return self._model.run(unit, inputs, self._batches[micro] if self._model.reads_batches else None)

    def _inputs(self, unit, micro):
        """Returns the unit's inputs: leaves that require gradients if there is something before to train."""
        if unit == 0:
            return None if self._model.reads_batches else self._part_of_batch(0, micro)
        if self._begins_run(unit):
            tensors, is_tuple, needs, self._marks[micro] = messages.receive(self._native.received())
        else:
            outputs = self._passed.pop(micro)
            tensors = messages.tensors_of(outputs, "")
            needs = [each is not None and each.requires_grad for each in tensors]
            is_tuple = not isinstance(outputs, torch.Tensor)
            tensors = [None if each is None else each.detach() for each in tensors]
        for each, need in zip(tensors, needs):
            if need and torch.is_grad_enabled():
                each.requires_grad_()
        self._kept[micro, unit] = tensors, None
        return tuple(tensors) if is_tuple else tensors[0]

    def _part_of_batch(self, part, micro):
        batch = self._batches[micro]
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            kind = f"a {type(batch).__name__}" + (f" of {len(batch)}" if isinstance(batch, (tuple, list)) else "")
            raise _native.UsageError(f"engine.{self._batches._call}: micro-batch {micro} is {kind}; expected (inputs, labels), each a "
                                     "tensor or a tuple; engine.set_batch_fn() sets a function that makes it so")
        return to_device(self._engine.device, batch[part])

    def _loss(self, outputs, micro):
        return self._model.loss_of(outputs, None if self._model.reads_batches else self._part_of_batch(1, micro))

    def _pass_on(self, unit, micro, outputs):
        """Leaves the outputs to the next unit: in this stage, or by a message."""
        tensors = messages.tensors_of(outputs, self._where(unit, micro))
        inputs, _ = self._kept.get((micro, unit), ([], None))
        self._kept[micro, unit] = inputs, tensors
        if self._begins_run(unit + 1):
            mark = self._batches.mark(micro) if unit < self._model.first_units[1] else self._marks.pop(micro)
            messages.send(tensors, not isinstance(outputs, torch.Tensor), self._native.to_send, mark)
        else:
            self._passed[micro] = outputs

    def _backward(self, unit, micro):
        inputs, outputs = self._kept.pop((micro, unit))
        gradients = self._gradients_of(unit, micro, outputs)
        roots = [(output, gradient) for output, gradient in zip(outputs, gradients)
                 if gradient is not None and output is not None and output.requires_grad]
        if roots:
            torch.autograd.backward(*map(list, zip(*roots)))
        self._return(unit, micro, inputs)

    def _gradients_of(self, unit, micro, outputs):
        if not self._begins_run(unit + 1):
            return self._gradients.pop(micro)
        memory = self._native.received_gradient()
        gradients = [None] * len(outputs) if memory is None else messages.receive(memory)[0]
        for output, gradient in zip(outputs, gradients, strict=True):
            if gradient is not None and gradient.shape != output.shape:
                raise _native.UsageError(f"{self._where(unit, micro)}: the output has the shape {tuple(output.shape)}, and the next "
                                         f"stage has sent a gradient of the shape {tuple(gradient.shape)}")
        return gradients

    def _end_with_loss(self, unit, micro):
        loss = self._loss(self._forward(unit, micro), micro)
        self._compare(micro)
        refuse_no_loss(loss)
        self._native.note_loss(float(loss.detach()))
        scale = self._native.loss_scale()
        (loss if scale == 1 else loss * scale).backward()
        inputs, _ = self._kept.pop((micro, unit), ([], None))
        self._return(unit, micro, inputs)

    def _compare(self, micro):
        """Tells once if the first stage has read other samples than this one, the last, whose labels the loss has."""
        first, engine = self._marks.pop(micro, None), self._engine
        own = None if first is None or engine.told_of_samples else self._batches.mark(micro)
        if own is None or own == first or [shape for shape, _ in own] != [shape for shape, _ in first]:
            return  # a first stage without labels may be given others in their place
        engine.told_of_samples = True
        print(f"zero: step {self._native.step_count() + 1}: stage 0 has read other labels for micro-batch {micro} than rank "
              f"{engine.global_rank}, of the last stage: inputs and labels are of different samples. Give all stages of a data rank "
              "(engine.grid.get_data_parallel_rank()) the same iterator, with the same seed if it shuffles", flush=True)

    def _return(self, unit, micro, inputs):
        """Leaves the gradients of the inputs to the unit before."""
        gradients = [None if each is None else each.grad for each in inputs]
        if self._begins_run(unit):
            messages.send(gradients, True, self._native.gradient_to_send)
        else:
            self._gradients[micro] = gradients

    @contextlib.contextmanager
    def _numbers(self, unit, micro):
        """Random numbers by step, micro-batch among those of all ranks, and unit, so that dropout does not depend on the
        stages, and with zero_core.rank_independent not on ranks."""
        before, engine = torch.get_rng_state(), self._engine
        torch.manual_seed(hash_of(engine._seed, self._native.step_count(), engine.micro_batches.share.number(micro), unit))
        try:
            yield
        finally:
            torch.set_rng_state(before)
