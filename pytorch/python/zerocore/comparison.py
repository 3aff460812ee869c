"""zerocore.compare_stages(): trains the same steps from the same start at each stage, and reports the cost of each."""

import ctypes
import gc
import json
import time

import torch

from . import _native
from .config import find
from .initialize import initialize
from .ranks import ranks


class Comparison:
    """The result of compare_stages(). str() of it is the table that rank 0 has printed."""

    def __init__(self, native):
        self._native = native

    @property
    def equal(self):
        """Whether all stages are bitwise identical: each loss, gradient norm and skipped step, and the digest of all
        weights and optimizer states. Stages with wire formats are compared only with stages of the same format."""
        return self._native.bits_equal()

    @property
    def figures(self):
        """The contents of report.json as a dict."""
        return json.loads(self._native.json())

    def __str__(self):
        return self._native.text()


def compare_stages(make_model, batches, stages=("0", "1", "2", "3", "grad_op"), *, config=None, loss=None, report=None,
                   seed=1, **arguments):
    """Trains make_model() on this rank's micro-batches at each stage, one after the other. Collective.

    A batch is passed to the model as keyword arguments (a dict), positional arguments (a tuple or list) or one
    argument. The loss is the model's output, its .loss, or the result of `loss(output, batch)`. `config` is that of
    initialize(); each item of `stages` replaces its stage, and its offload and wire formats if the item names them.
    Further arguments go to initialize(). `report` is a folder for report.html, report.md and report.json. Raises
    ConfigError if a stage needs GPUs and the ranks have none."""
    variants = _native.parse_stage_list(",".join(map(str, stages)), "compare_stages: the stages")
    for variant in variants:
        if "pipeline.stages" in variant.overrides:
            raise _native.ConfigError("compare_stages: pipelines are compared by train_gpt --compare-stages alone: leave "
                                      "items with /p out")
        if variant.of_gpu and ranks().gpu < 0:
            raise _native.ConfigError(f"compare_stages: {variant.name} needs GPUs: CPU ranks keep their state in host "
                                      "memory anyway, so it would be the stage without offload again; leave it out")
    return _Comparing(make_model, list(batches), variants, find(None, config or {}), loss or _loss_of, report,
                      seed, arguments).run()


def _loss_of(output, batch):
    if isinstance(output, torch.Tensor):
        return output
    loss = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if loss is None:
        raise _native.UsageError(f"compare_stages: the model returned a {type(output).__name__} without a loss; give "
                                 "loss=, a function of the output and the batch")
    return loss


class _Comparing:
    def __init__(self, make_model, batches, variants, config, loss, folder, seed, arguments):
        self.make_model, self.batches, self.variants = make_model, batches, variants
        self.config, self.loss, self.seed, self.arguments = config, loss, seed, arguments
        self.settings = config.read()
        self.job = ranks()
        self.folder = folder if self.job.rank == 0 else None
        self.report = _native.Comparison()
        if self.folder is not None:
            _native.prepare_directory(str(self.folder))

    def run(self):
        # One unmeasured step: memory that libraries allocate once must not count for the first stage.
        self.trained(self.variants[-1], rehearses=True)
        for variant in self.variants:
            try:
                self.report.add(self.trained(variant))
            except BaseException as error:
                self.report.note_failure(variant.name, f"{type(error).__name__}: {error}")
                self.write()
                raise
            self.write()
        result = Comparison(self.report)
        if self.job.rank == 0:
            print(result, flush=True)
        return result

    def write(self):
        if self.folder is not None:
            self.report.write(str(self.folder))

    def config_of(self, variant):
        overrides = dict(variant.overrides)
        if self.settings.sync_is_automatic:  # depends on the stage, and changes bits
            overrides.setdefault("zero_core.gradient_sync", "each")
        return self.config.with_overrides(overrides)

    def trained(self, variant, rehearses=False):
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # memory that C libraries keep would count in the next stage's baseline
        torch.manual_seed(self.seed)
        model = self.make_model()
        engine, *_ = initialize(model=model, config=self.config_of(variant), **self.arguments)
        try:
            return self.steps(engine, model, variant, rehearses)
        finally:
            engine.destroy()

    def steps(self, engine, model, variant, rehearses):
        accumulation = engine.gradient_accumulation_steps()
        count = len(self.batches) // accumulation
        if count == 0:
            raise _native.UsageError(f"compare_stages: {len(self.batches)} batches are less than one step, which has "
                                     f"{accumulation} micro batches")
        if rehearses:
            self.describe(engine, model, count)
        warm_up, records = count // 5, []
        torch.manual_seed(self.seed + 1 + self.job.rank)
        engine.train()
        for index in range(1 if rehearses else count):
            if index == warm_up:
                after_warm_up = engine.native.report()
            begin = time.perf_counter()
            tokens = 0
            for batch in self.batches[index * accumulation:(index + 1) * accumulation]:
                engine.backward(self.loss(_call(engine, batch), batch))
                engine.step()
                tokens += _tokens_of(batch)
            last = engine.last_step
            rate = self.job.size * tokens / (time.perf_counter() - begin)
            records.append(_native.MeasuredStep(last.loss, last.grad_norm, rate, last.skipped))
        if rehearses:
            return None
        return _native.MeasuredRun(variant.name, records, warm_up, after_warm_up, engine.native.report(),
                                   engine.digest(), variant.encoded)

    def describe(self, engine, model, count):
        settings = _native.CommonSettings(
            type(model).__name__, engine.native.report().parameter_count, self.job.size, count, count // 5,
            self.settings.sync_is_automatic or self.settings.syncs_each)
        self.report.begin(settings, [variant.name for variant in self.variants])
        self.report.facts = [("ranks", self.job.describe()), *settings.facts(),
                             ("program", f"zerocore with torch {torch.__version__}")]


def _call(engine, batch):
    if isinstance(batch, dict):
        return engine(**batch)
    return engine(*batch) if isinstance(batch, (tuple, list)) else engine(batch)


def _tokens_of(batch):
    """Returns the number of elements of the first integer tensor with rows, or else the number of rows of the first
    tensor."""
    values = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, (tuple, list)) else [batch]
    tensors = [value for value in values if isinstance(value, torch.Tensor) and value.dim() > 0]
    for tensor in tensors:
        if not tensor.is_floating_point() and tensor.dim() == 2:
            return tensor.numel()
    return len(tensors[0]) if tensors else 0
