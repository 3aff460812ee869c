"""Optimizers of other libraries, by module and name, and the kind of each: the engine's type, except for transformers'
Adafactor, which names its options otherwise."""

CLASSES = {
    ("transformers.optimization", "Adafactor"): "TransformersAdafactor",
    ("deepspeed.ops.adam", "FusedAdam"): "Adam", ("deepspeed.ops.adam", "DeepSpeedCPUAdam"): "Adam",
    ("deepspeed.ops.adagrad", "DeepSpeedCPUAdagrad"): "Adagrad",
    ("deepspeed.ops.lion", "FusedLion"): "Lion", ("deepspeed.ops.lion", "DeepSpeedCPULion"): "Lion",
    ("deepspeed.ops.lamb", "FusedLamb"): "Lamb",
    ("apex.optimizers", "FusedAdam"): "Adam", ("apex.optimizers", "FusedSGD"): "SGD",
}
