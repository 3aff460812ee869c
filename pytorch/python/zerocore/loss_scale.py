"""The loss scale by the names of DeepSpeed's optimizers."""

import types


class ScaleFigures(types.SimpleNamespace):
    """Values of the loss scale, which cannot be written to."""

    def __setattr__(self, name, value):
        raise AttributeError(f"{name} of the loss scale cannot be set: the engine has the scale, and changes it as fp16.loss_scale, "
                             "fp16.initial_scale_power and fp16.loss_scale_window of the config say")


class LossScale:
    """The part of the engine's optimizer that scripts read the loss scale from. Without fp16 the scale is 1."""

    def _engine_of_scale(self):
        engine = self._engine() if self._engine is not None else None
        return engine if engine is not None and engine.native is not None else None

    @property
    def cur_scale(self):
        """The factor of the next loss, which engine.backward() and engine.scale() apply. It may wait for the last step."""
        engine = self._engine_of_scale()
        return 1.0 if engine is None else float(engine.native.scale_of_losses())

    loss_scale = cur_scale

    @property
    def dynamic_loss_scale(self):
        """Whether overflows and good steps change the scale."""
        engine = self._engine_of_scale()
        return engine is not None and engine.dynamic_loss_scale()

    @property
    def loss_scale_config(self):
        """The scale as DeepSpeed's optimizers without ZeRO have it."""
        engine = self._engine_of_scale()
        if engine is None:
            return ScaleFigures(dynamic_loss_scale=False, cur_scale=1.0, cur_iter=0)
        options = engine.dynamic_loss_scale_args()
        return ScaleFigures(
            dynamic_loss_scale=self.dynamic_loss_scale, cur_scale=self.cur_scale, cur_iter=engine.global_steps, scale_factor=2.0,
            initial_scale=float(options["init_scale"]), scale_window=options["scale_window"],
            min_loss_scale=options["min_scale"])

    @property
    def loss_scaler(self):
        """The scale as the object that DeepSpeed's ZeRO optimizers have."""
        return ScaleFigures(cur_scale=self.cur_scale, loss_scale=self.cur_scale, dynamic=self.dynamic_loss_scale)

    def needs_scaler(self):
        """Returns whether a loss must be multiplied by the scale before its backward()."""
        engine = self._engine_of_scale()
        return engine is not None and engine.fp16_enabled()
