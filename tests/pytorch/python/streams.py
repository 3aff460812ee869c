"""One rank: whole weights that leave an engine and enter another, `streams.py CASE`."""

import contextlib
import gc
import inspect
import io
import json
import os
import subprocess
import sys
import tempfile
import threading

import torch
from torch import nn

import cases
import zerocore
from zerocore.ranks import text_of_root

RANK, SIZE = (0, 1) if sys.argv[1] == "serve" else (zerocore.ranks().rank, zerocore.ranks().size)


class Net(nn.Module):
    def __init__(self, width=24, depth=3):
        super().__init__()
        self.table = nn.Embedding(50, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
                                    for _ in range(depth))
        self.head = nn.Linear(width, 50, bias=False)
        self.head.weight = self.table.weight
        self.register_parameter("codes", nn.Parameter(torch.arange(12, dtype=torch.uint8), requires_grad=False))

    def forward(self, tokens):
        x = self.table(tokens)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def start(stage=3, seed=1, net=None, precision="bf16", optimizer=None, **more):
    torch.manual_seed(seed)
    net = net or Net()
    return zerocore.initialize(model=net, config={
        "train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": stage}, "steps_per_print": 10**9,
        "zero_core": {"start_line": False}, **({precision: {"enabled": True}} if precision else {}),
        "optimizer": optimizer or {"type": "AdamW", "params": {"lr": 1e-2}}, **more})[0]


def step(engine, seed):
    tokens = torch.randint(50, (2, 8), generator=torch.Generator().manual_seed(97 * seed + engine.global_rank))
    engine.backward(nn.functional.cross_entropy(engine(tokens).float().flatten(0, 1), tokens.flatten()))
    engine.step()


@contextlib.contextmanager
def refusal(*texts, kind=zerocore.UsageError):
    try:
        yield
    except kind as error:
        assert all(text in str(error) for text in texts), error
    else:
        raise AssertionError(f"no error with {texts}")


def weights():
    """Each way to whole weights gives the same, on the ranks that asked for them, and an early end harms nothing."""
    for stage in (0, 2, 3):
        engine = start(stage)
        step(engine, 0)
        expected = {name: engine.read(each).to(each.dtype) for name, each in engine.module.named_parameters()}
        found = dict(engine.stream_weights(1 << 20))
        assert list(found) == list(expected)
        assert all(torch.equal(found[name], expected[name]) and found[name].dtype == expected[name].dtype for name in expected)
        alone = dict(engine.stream_weights(1 << 20, ranks=SIZE - 1))
        assert len(alone) == (len(expected) if RANK == SIZE - 1 else 0)
        state = engine._zero3_consolidated_16bit_state_dict()
        assert (state is None) == (RANK > 0)
        whole = engine.module_state_dict()
        assert whole["head.weight"] is whole["table.weight"] and torch.equal(whole["head.weight"], expected["table.weight"])
        for name, tensor in engine.stream_weights(1 << 20):
            if name.startswith("blocks.0") and RANK == 0:
                break  # the other ranks go on
        stream = engine.stream_weights(1 << 20)
        next(stream)
        step(engine, 1)  # another call
        with refusal("a stream of weights was ended by engine.forward()"):
            next(stream)
        stream = engine.stream_weights(1 << 20)  # and one that nobody goes through
        del stream
        with contextlib.suppress(ValueError):
            for name, tensor in engine.stream_weights(1 << 20):
                if RANK == SIZE - 1:
                    raise ValueError("the server is gone")
        with refusal("the budget is 4703 bytes, and parameter blocks.0.0.weight needs 4704, 2400 of them for the tensor before"):
            engine.stream_weights(4703)
        assert len(list(engine.stream_weights(4704, ranks=0))) == (len(expected) if RANK == 0 else 0)
        with refusal('ranks=9; expected "all", or a rank from 0 to'):
            engine.stream_weights(1 << 20, ranks=9)
        with refusal("parameter codes holds bytes (torch.uint8)"):
            engine.stream_weights(1 << 20, dtype=torch.float32)
        digest = engine.digest()
        step(engine, 2)
        assert engine.digest() != digest
        engine.destroy()


def loads():
    """A stream of one engine fills another, at another stage, also from one rank, and what does not fit is an error on all."""
    source, target = start(3, seed=1), start(0, seed=2, precision=None)
    assert target.load_stream(source.stream_weights(1 << 20)) == []
    weights = dict(source.stream_weights(1 << 20))
    assert all(torch.equal(target.read(each), weights[name].to(each.dtype)) for name, each in target.module.named_parameters())
    other = start(3, seed=3)
    assert other.load_stream(weights.items() if RANK == 0 else None, source=0) == []
    assert all(torch.equal(other.read(each), weights[name]) for name, each in other.module.named_parameters())
    some = {name: each for name, each in weights.items() if "blocks.1" not in name}
    assert len(other.load_stream(some.items(), allow_missing="blocks.*")) == 4
    with refusal("the stream lacked 4 parameters, blocks.1.0.bias", "allow_missing covers"):
        other.load_stream(some.items())
    with refusal("the model has no parameter 'nobody'"):
        other.load_stream([("nobody", torch.zeros(1))])
    with refusal("codes has the shape (3,) in the stream, and (12,)"):
        other.load_stream([("codes", torch.zeros(3))] if RANK == 0 else None, source=0)
    with refusal("table.weight is torch.float32 in the stream, and torch.bfloat16 in the model"):
        other.load_stream([("table.weight", torch.zeros(50, 24))])
    with refusal("the stream raised ZeroDivisionError"):
        other.load_stream((1 // 0 for _ in range(1)) if RANK == 0 else None, source=0)
    step(other, 0)


def merged():
    """A stream with merge_adapters has what merge_and_unload() leaves, under the names of the base, and changes nothing."""
    import peft
    for precision in (None, "bf16"):
        for stage in (0, 3):
            for dora in (False, True):
                def model():
                    torch.manual_seed(5)
                    base = Net()
                    del base._parameters["codes"]
                    if precision:
                        base.bfloat16()
                    return peft.get_peft_model(base, peft.LoraConfig(
                        r=4, target_modules=r"blocks\.\d+\.[02]", modules_to_save=["head"], init_lora_weights=False, use_dora=dora), autocast_adapter_dtype=False)
                engine = start(stage, net=model(), precision=precision)
                digest = engine.digest()
                expected = model().merge_and_unload().state_dict()
                found = dict(engine.stream_weights(1 << 20, merge_adapters=True))
                assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
                for name in found:
                    assert torch.equal(found[name], expected[name]), name
                assert not any(torch.equal(found[name], each) for name, each in ((n.removeprefix("base_model.model.").replace(
                    ".base_layer.", "."), p) for n, p in model().named_parameters()) if name.endswith("blocks.0.0.weight"))
                assert engine.digest() == digest
                engine.destroy()
    with refusal("the model has no adapters of peft to merge"):
        start().stream_weights(1 << 20, merge_adapters=True)


def resident():
    """The proportional set size of this process in bytes without pages of files: its share of torch's libraries grows when
    another program that maps them ends."""
    with open("/proc/self/smaps_rollup") as file:
        return sum(1024 * int(line.split()[1]) for line in file if line.startswith(("Pss_Anon:", "Pss_Shmem:")))


def growth(call):
    """The most that call() adds to the resident bytes while it runs."""
    gc.collect()
    rest, most, done = resident(), [0], threading.Event()

    def sample():
        while not done.wait(0.002):
            most[0] = max(most[0], resident() - rest)
    sampler = threading.Thread(target=sample)
    sampler.start()
    call()
    done.set()
    sampler.join()
    return most[0]


def memory(size, budget):
    """A stream, an export and the files of a model of `size` MiB take `budget` MiB beyond rest, and rank 0's state is one
    model."""
    size, limit = int(size) << 20, int(budget) << 20
    holder = tempfile.TemporaryDirectory() if RANK == 0 else None
    folder = text_of_root(zerocore.ranks(), lambda: holder.name)
    slack = 12 << 20  # what allocators keep, and the stacks of threads
    for stage in (0, 3):
        for lora in (False, True):
            width, low = 1024, torch.get_default_dtype()
            torch.set_default_dtype(torch.bfloat16)
            net = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range((size - limit // 2) // (2 * width * width))),
                                nn.Linear(width, limit // (4 * width), bias=False))
            torch.set_default_dtype(low)
            if lora:
                import peft
                net = peft.get_peft_model(net, peft.LoraConfig(r=8, target_modules=r"\d", init_lora_weights=False))
            net.requires_grad_(False)
            engine = zerocore.initialize(model=net, config={
                "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": stage}, "bf16": {"enabled": True},
                "steps_per_print": 10**9, "zero_core": {"start_line": False}})[0]

            def go_through():
                for name, tensor in engine.stream_weights(limit, merge_adapters=lora):
                    assert tensor.shape[1] == width
            calls = {"stream": go_through}
            if not lora:
                calls["export"] = lambda: engine.export_model(f"{folder}/{stage}")
                calls["state"] = engine._zero3_consolidated_16bit_state_dict
            for name, call in calls.items():
                if name != "stream" or lora:
                    call()  # loads code of torch; half of the peer's pages that a rank has read counts as its own from then on
                taken = growth(call)
                most = {"stream": limit, "export": 64 << 20, "state": size if RANK == 0 else 0}[name]
                print(f"stage {stage}, lora {lora}, rank {RANK}: {name} of {size >> 20} MiB takes {taken / 2**20:.1f} MiB", flush=True)
                assert taken <= most + slack, (stage, name, taken)
            engine.destroy()
            del engine, net


class Server:
    """A process that receives: its messages are a torch.save() of (head, pieces) and its answers lines."""

    def __init__(self, weights):
        self._process = subprocess.Popen([sys.executable, "-W", "ignore", __file__, "serve"], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE)
        self.bytes = 0
        self._send({name: torch.empty_like(each) for name, each in weights.items()})

    def _send(self, value):
        buffer = io.BytesIO()
        torch.save(value, buffer)
        self._process.stdin.write(len(buffer.getvalue()).to_bytes(8, "little") + buffer.getvalue())
        self._process.stdin.flush()
        self.bytes = len(buffer.getvalue())

    def take(self, head, pieces):
        """Returns the receiver's digest, None if it needs all weights."""
        self._send((head, pieces))
        return json.loads(self._process.stdout.readline())

    def end(self):
        self._process.stdin.close()
        assert self._process.wait() == 0


def serve():
    """The server of `changes`. After each message its weights are whole, or it says that they are not."""
    def messages():
        while size := int.from_bytes(sys.stdin.buffer.read(8), "little"):
            yield torch.load(io.BytesIO(sys.stdin.buffer.read(size)))
    received = messages()
    receiver = zerocore.WeightReceiver(next(received))
    for head, pieces in received:
        ok = receiver.receive(head, pieces)
        assert ok == receiver.is_intact()
        print(json.dumps(receiver.digest), flush=True)
    os._exit(0)


def follow(engine, steps, server=None):
    """A receiver on rank 0 has the weights after each step, though one message in ten is lost."""
    receiver = zerocore.WeightReceiver({name: torch.zeros(each.shape, dtype=each.dtype)
                                        for name, each in engine.module.named_parameters()})
    since, most, lost = None, 0, 0
    for number in range(steps):
        stream = engine.stream_changes(since, 1 << 20, ranks=0)
        pieces = list(stream)
        sent = sum(values.nbytes + (0 if numbers is None else numbers.nbytes) for _, _, numbers, values in pieces)
        if RANK == 0 and number % 10 == 5:
            since, lost = (since if number % 20 == 5 else stream.head["digest"]), lost + 1  # the trainer may know that, or not
        elif RANK == 0:
            assert (stream.head["since"] is None) == (receiver.digest is None or number % 20 == 6), (number, stream.head)
            if stream.head["since"] is not None:
                most = max(most, sent)
            if receiver.receive(stream.head, pieces):
                assert receiver.digest == stream.head["digest"] and receiver.is_intact()
            else:
                assert number % 20 == 16, number
            since = receiver.digest
            if server is not None:
                assert server.take(stream.head, pieces) == receiver.digest
        step(engine, number)
    return most


def changes(steps):
    import peft
    for precision, optimizer, stage in (("bf16", "AdamW", 3), ("fp16", "SGD", 1), ("bf16", "Muon", 2), (None, "Lion", 0)):
        for lora in (False, True):
            if lora and stage != 3:
                continue
            torch.manual_seed(6)
            net = Net()
            if lora:
                net = peft.get_peft_model(net, peft.LoraConfig(r=4, target_modules=r"blocks\.\d+\.[02]", init_lora_weights=False))
            engine = start(stage, net=net, precision=precision, optimizer={
                "type": optimizer, "params": {"lr": 1e-3, "weight_decay": 0.1}},
                **({"zero_core": {"start_line": False, "track_changes": True}} if lora else {}))
            weights = {name: engine.read(each).to(each.dtype) for name, each in engine.module.named_parameters()}
            server = Server(weights) if RANK == 0 and stage == 3 and not lora else None
            most = follow(engine, int(steps), server)
            whole = sum(each.nbytes for each in weights.values())
            if RANK == 0:
                print(f"{precision}, {optimizer}, stage {stage}, lora {lora}: at most {most} of {whole} bytes", flush=True)
            if server is not None:
                server.end()
            if stage == 3 and not lora:  # the server starts anew, and then the trainer
                stream = engine.stream_changes(None, 1 << 20, ranks=0)
                pieces = list(stream)
                if RANK == 0:
                    server = Server(weights)
                    assert server.take(stream.head, pieces) == stream.head["digest"]
                engine.destroy()
                engine = start(stage, net=Net(), precision=precision)
                stream = engine.stream_changes(stream.head["digest"], 1 << 20, ranks=0)
                assert stream.head["since"] is None
                pieces = list(stream)
                if RANK == 0:
                    assert server.take(stream.head, pieces) == stream.head["digest"]
                    server.end()
            # An early end, and a value that the script writes.
            stream = engine.stream_changes(None, 1 << 20)
            del stream
            stream = engine.stream_changes(None, 1 << 20)
            list(stream)
            parameter = next(each for each in engine.module.parameters() if each.requires_grad)
            values = engine.read(parameter)
            values.view(-1)[3] += 1
            engine.write(parameter, values)
            found = list(engine.stream_changes(stream.head["digest"], 1 << 20))
            assert [(name, shape, numbers.tolist()) for name, shape, numbers, _ in found] == [
                (engine.name_of(parameter), tuple(parameter.shape), [3])], found
            engine.destroy()


def load_in_vllm(weights, pieces):
    """Changes a server's weights as vLLM does: by its own function where it is installed, and else by one that keeps to its
    documentation, with patches in coordinates of the checkpoint, whose 32-bit indices are unique and whose values no NaNs."""
    class Model:
        def load_weights(self, pairs):
            for name, tensor in pairs:
                weights[name].copy_(tensor)
    try:
        from vllm.model_executor.model_loader import checkpoint_weight_patch as vllm
    except ImportError:
        for name, shape, values, numbers in pieces:
            assert weights[name].shape == shape and weights[name].dtype == values.dtype and values.shape == numbers.shape
            assert numbers.dtype == torch.int32 and numbers.unique().numel() == numbers.numel() and not values.isnan().any()
            weights[name].view(-1).index_copy_(0, numbers.long(), values)
    else:
        vllm.load_checkpoint_weight_patches(Model(), [
            vllm.CheckpointWeightPatch(name, shape, values.dtype, values, numbers) for name, shape, values, numbers in pieces])


def servers():
    """The forms of other packages."""
    from zerocore.integrations import servers as forms
    engine = start()
    stream = engine.stream_changes(None, 1 << 20)
    with refusal("for_vllm: all weights follow"):
        next(forms.for_vllm(stream))
    assert len(list(stream)) == 14
    server = {name: engine.read(each).to(each.dtype) for name, each in engine.module.named_parameters()}
    for number in range(3):
        step(engine, number)
        stream = engine.stream_changes(stream.head["digest"], 1 << 20)
        load_in_vllm(server, list(forms.for_vllm(stream)))
    assert all(torch.equal(engine.read(each).to(each.dtype), server[name]) for name, each in engine.module.named_parameters())

    class Client:
        def update_named_params(self, metadata, named_params):
            self.metadata, self.weights = metadata, dict(named_params)
    client = Client()
    with contextlib.suppress(ImportError):
        from trl.generation.vllm_client import VLLMClient
        own, theirs = (list(inspect.signature(each.update_named_params).parameters) for each in (Client, VLLMClient))
        assert own == theirs, theirs
    forms.update_trl(engine, client if RANK == 0 else None, 1 << 20)
    if RANK == 0:
        assert [(name, list(each.shape)) for name, each in client.weights.items()] == [(n, s) for n, _, s in client.metadata]
        assert client.metadata[1] == ("table.weight", "bfloat16", [50, 24]), client.metadata


cases.run({name: value for name, value in globals().items() if callable(value)})
gc.collect()
print("streamed", flush=True)
