"""The parts of zerocore.initialize() for models in stages."""

import sys

from .. import _native, optimizers
from .declarations import native_pipeline, refuse_unfit
from .engine import PipelineEngine
from .stages import Stages

__all__ = ["PipelineEngine", "in_stages", "is_in_stages", "names_for", "native_pipeline", "of_other_stages", "refuse_others"]


def is_in_stages(model):
    """Returns whether the model is one in stages."""
    return isinstance(model, Stages)


def in_stages(model, settings, job):
    """Returns the model, in stages if the config's pipeline.stages says so. Raises UsageError for a model that cannot be cut,
    and for callers that run whole models. Collective."""
    if is_in_stages(model):
        if settings.pipeline_stages not in (1, model.stage_count):
            raise _native.ConfigError(f"pipeline.stages is {settings.pipeline_stages}, and the PipelineModule has "
                                      f"{model.stage_count} stages: make them equal, or leave the key out")
        if job.stages != model.stage_count:
            raise _native.UsageError(f"zerocore.initialize: this model has {model.stage_count} stages, and a later one has cut the "
                                     f"ranks into {job.stages}: give initialize() a model before the next is made")
        if model.stage_count > 1 and settings.pipeline_chunks != model.chunks:
            raise _native.ConfigError(f"zero_core.pipeline.chunks is {settings.pipeline_chunks}, and the PipelineModule has "
                                      f"{model.chunks}: give it chunks={settings.pipeline_chunks}, or change the key")
        refuse_unfit(model, job)
        return model
    if settings.pipeline_stages == 1:
        if job.stages > 1:
            job.cut(1)
        return model
    _refuse_caller(settings.pipeline_stages)
    from .decoders import DecoderStages  # torch alone is not enough for it
    cut = DecoderStages(model, settings.pipeline_stages, settings.pipeline_partition, settings.pipeline_chunks)
    refuse_unfit(cut, job)
    return cut


def _refuse_caller(stages):
    """Raises UsageError if a library that calls forward() of whole models makes the engine."""
    callers, frame = {"accelerate.accelerator": "accelerate", "transformers.trainer": "the Trainer"}, sys._getframe(1)
    found = None
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        found = callers.get(module, "Lightning" if module.startswith(("lightning.", "pytorch_lightning.")) else found)
        frame = frame.f_back
    if found is not None:
        raise _native.UsageError(
            f"pipeline.stages is {stages}, and {found} makes this engine, which calls forward() and backward() of a whole model: the "
            "stages of a pipeline work on several micro-batches at a time. Leave the key out, or write the loop with "
            "zerocore.initialize() and engine.train_batch(iterator)")


def names_for(model, job):
    """Returns optimizers.names_of(), of groups that train something in any stage of the model. The result's calls are
    collective for a model in stages."""
    if not is_in_stages(model):
        return optimizers.names_of

    def names_of(groups):
        if job.sum(float(len(groups))) != job.size * len(groups):
            raise _native.UsageError(f"zerocore.initialize: the optimizer has {len(groups)} groups of parameters on this rank, and "
                                     "another number on others: each stage needs the same groups, which may be empty")
        return [f"group{index}" if job.sum(float(name is not None)) else None
                for index, name in enumerate(optimizers.names_of(groups))]
    return names_of


def of_other_stages(model):
    """Returns parameters of other stages that the program may have given to its optimizer."""
    return model.of_other_stages() if is_in_stages(model) else ()


def refuse_others(others):
    """Raises UsageError for trained parameters outside of a model in stages."""
    if others:
        raise _native.UsageError(f"zerocore.initialize: the optimizer has {len(others)} trained parameters outside of the model, "
                                 "which belong to no stage: make them parameters of a layer")
