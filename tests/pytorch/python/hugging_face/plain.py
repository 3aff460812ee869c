"""The plain process's replacement of the engine under bf16: sums of gradients, clipping and master weights in fp32."""

import torch


def in_bf16(model):
    """Returns the model, whose parameters keep their fp32 values, with which the master weights begin."""
    for parameter in model.parameters():
        parameter.before = parameter.detach().clone()
    return model.bfloat16()


class MasterAdamW(torch.optim.AdamW):
    newest = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._masters, self._sums, self._factor = {}, {}, 1.0
        MasterAdamW.newest = self
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.register_post_accumulate_grad_hook(self._add)

    def _add(self, parameter):
        self._sums[parameter] = self._sums.get(parameter, 0) + parameter.grad.float()
        parameter.grad = None

    def clip(self, max_norm):
        norm = torch.stack([gradient.double().norm() for gradient in self._sums.values()]).norm().item()
        self._factor = min(1.0, max_norm / (norm + 1e-6))
        return torch.tensor(norm)

    def step(self, closure=None):
        before = {parameter: parameter.dtype for parameter in self._sums}
        for parameter, gradient in self._sums.items():
            if parameter not in self._masters:
                self._masters[parameter] = getattr(parameter, "before", parameter.detach()).float().clone()
            parameter.data = self._masters[parameter]
            parameter.grad = gradient * self._factor
        super().step()
        for parameter, dtype in before.items():
            parameter.grad = None
            parameter.data = parameter.data.to(dtype, copy=True)
        self._sums, self._factor = {}, 1.0


def train_in_bf16():
    """Replaces the Trainer's AdamW by this one for models that are converted to bf16."""
    from accelerate import Accelerator
    from transformers import Trainer
    own = Trainer.get_optimizer_cls_and_kwargs

    def get(args, model=None):
        kind, options = own(args, model)
        options.pop("fused", None)
        return (MasterAdamW if issubclass(kind, torch.optim.AdamW) else kind), options

    Trainer.get_optimizer_cls_and_kwargs = staticmethod(get)
    Accelerator.clip_grad_norm_ = lambda self, parameters, max_norm, norm_type=2: MasterAdamW.newest.clip(max_norm)


def train_in_fp32():
    from accelerate import Accelerator
    from transformers import Trainer
    Trainer.get_optimizer_cls_and_kwargs, Accelerator.clip_grad_norm_ = _own


def _remember():
    from accelerate import Accelerator
    from transformers import Trainer
    return staticmethod(Trainer.get_optimizer_cls_and_kwargs), Accelerator.clip_grad_norm_


_own = _remember()
