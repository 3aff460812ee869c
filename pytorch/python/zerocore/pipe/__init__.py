"""Pipelines: models whose layers are cut into stages, each on a part of the ranks, at every ZeRO stage.

    from zerocore.pipe import LayerSpec, PipelineModule

    net = PipelineModule(layers=[LayerSpec(nn.Linear, 64, 64), nn.ReLU(), LayerSpec(nn.Linear, 64, 10)], num_stages=2,
                         loss_fn=nn.CrossEntropyLoss())
    engine, *_ = zerocore.initialize(model=net, config="ds_config.json")
    loss = engine.train_batch(iterator)

The names and arguments are those of deepspeed.pipe; losses and weights have the bits of one stage.
"""

from .layers import LayerSpec, PipelineModule, TiedLayerSpec

__all__ = ["LayerSpec", "PipelineModule", "TiedLayerSpec", "cut_decoder"]


def cut_decoder(model, num_stages, partition_method="best", chunks=1):
    """Returns a decoder of transformers, which each rank has constructed as a whole, in stages, for initialize(), which does so itself if pipeline.stages is above 1. The
    embeddings, each block, and the last norm with the head are a unit each. `chunks`: zero_core.pipeline.chunks of the config.
    Collective; raises UsageError for other models."""
    from .decoders import DecoderStages
    return DecoderStages(model, num_stages, partition_method, chunks)
