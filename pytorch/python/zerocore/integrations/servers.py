"""Forms in which servers take weights: vLLM's for changed elements, and the client of TRL for its vLLM server."""

from .. import _native


def for_vllm(stream):
    """Yields (name, shape, values, flat indices) of a stream of changes, as vLLM's sparse weight updates have them. Raises
    UsageError if all weights follow: send those by engine.stream_weights()."""
    if stream.head["since"] is None:
        raise _native.UsageError("for_vllm: all weights follow, since these changes are not known: send engine.stream_weights()")
    for name, shape, numbers, values in stream:
        yield name, shape, values, numbers


def update_trl(engine, client, budget, merge_adapters=False):
    """Sends all weights to TRL's server, from a buffer of `budget` bytes. `client`: trl's VLLMClient on rank 0, and None on the
    others. Collective."""
    stream = engine.stream_weights(budget, merge_adapters=merge_adapters, ranks=0)
    if client is not None:
        client.update_named_params([(name, str(dtype).removeprefix("torch."), list(shape)) for name, dtype, shape in stream.tensors],
                                   stream)
    stream.close()
