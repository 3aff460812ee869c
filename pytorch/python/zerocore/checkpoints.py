"""The engine's Python state in checkpoints (counters, optimizer groups, client state, random states), and the list
of checkpoints that load_checkpoint() loads only by their tag (save_checkpoint(save_latest=False))."""

import base64
import contextlib
import hashlib
import io
import json
import os
import random
import sys

import torch

from . import _native, module_state, saved_state
from .ranks import text_of_root
from .schedules import ConfigSchedule
from .whole_files import whole_file

_LIST = ".not-latest"  # tags, one per line, in the folder that contains the checkpoints
_LATEST = "latest"


def text_of(tag, default):
    """Returns the tag as text, whatever its type, as DeepSpeed does. An empty text raises UsageError."""
    if tag is None:
        return default
    text = str(tag)
    if not text:
        raise _native.UsageError('the tag is an empty text: leave the tag out ("global_stepN" then, and the newest '
                                 "checkpoint in load_checkpoint()), or name one")
    return text


def folder(path, call, argument):
    """Returns a path that a script gives as text, as PathLike or as bytes. Raises UsageError for any other value, and
    for an empty text."""
    text = os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else ""
    if not text:
        raise _native.UsageError(f"{call}: {argument} is {path!r}; expected the path of a folder")
    return text


def _own_state(engine, client_state):
    """Returns the state that the engine itself has, and the program's. Ranks may have different numbers of micro steps
    with rank_independent; then none is saved."""
    return {"global_steps": engine.global_steps, "global_samples": engine.global_samples,
            "micro_steps": None if engine.micro_batches.rank_independent else engine.micro_steps,
            "skipped_steps": engine.skipped_steps, "client_state": {} if client_state is None else client_state,
            "param_groups": engine.optimizer.groups_to_save() if engine.optimizer is not None else [],
            "lr_scheduler": engine.lr_scheduler.state_dict() if engine.lr_scheduler is not None else None,
            "lr_scheduler_class": type(engine.lr_scheduler).__name__}


def copy_to_peers(engine, directory, client_state):
    """Begins a copy in memory of what a checkpoint in the directory would hold. Returns True. Collective."""
    engine.native.copy_to_peers(directory, save_options(engine, f"global_step{engine.global_steps}", client_state))
    return True


def save_options(engine, tag, client_state):
    """Returns the native options of a save, with all that Python adds to a checkpoint. Collective."""
    options, schedule = _native.SaveOptions(), engine.lr_scheduler
    options.tag, options.replace = tag, True  # as DeepSpeed does
    options.program_state = state_to_save(engine, client_state)
    options.rank_state = random_states(engine.device)
    if schedule is not None and not isinstance(schedule, ConfigSchedule):
        options.scheduler = type(schedule).__name__
    return options


def state_to_save(engine, client_state):
    """Returns what the engine and its model have in addition to arrays, as bytes for a checkpoint: rank 0's, and b""
    on the other ranks. Ranks may differ in the client state, of which rank 0's is stored with a notice, and in what
    module_state keeps by rank. Collective; raises UsageError on all ranks if one has a value that cannot be saved."""
    job, state = engine._ranks, _own_state(engine, client_state)
    of_module = module_state.collect(engine)
    problem = ""
    try:
        data = saved_state.to_bytes(state | of_module if job.rank == 0 else state, "")
        digests = _digests(state)
    except saved_state.Unsavable as error:
        problem = str(error)
    _agree_on(problem, job)
    if job.size > 1:
        _tell_differences(digests, job)
    if job.rank == 0:
        for notice in saved_state.notices_on(state, ""):
            _notice(notice)
    return data if job.rank == 0 else b""


def _agree_on(problem, job):
    """Raises UsageError on all ranks if one of them has a problem. Collective."""
    if job.sum(1.0 if problem else 0.0):
        raise _native.UsageError(f"save_checkpoint: {problem or 'another rank has an error, and says which'}")


def _digests(state):
    client = state["client_state"]
    parts = {f"client_state[{key!r}]": value for key, value in client.items()} if isinstance(client, dict) else {
        "client_state": client}
    parts.update((key, value) for key, value in state.items() if key != "client_state")
    return {name: hashlib.blake2b(saved_state.to_bytes(value, name), digest_size=8).hexdigest()
            for name, value in parts.items()}


def _tell_differences(digests, job):
    of_root = json.loads(text_of_root(job, lambda: json.dumps(digests)))
    differing = {name for name in {*of_root, *digests} if of_root.get(name) != digests.get(name)}
    if not job.sum(float(len(differing))):
        return
    names = [name for name in list(of_root)[:64] if job.sum(float(name in differing))]
    if job.rank == 0:
        _notice(f"the ranks gave save_checkpoint() different states; rank 0's is stored: {', '.join(names) or 'client_state'}")


def resume(engine, directory, tag, strict):
    """Loads all of a checkpoint into the native engine. Collective."""
    try:
        return engine.native.resume(directory, tag)
    except _native.Error as error:
        if strict or "does not fit the model" not in str(error):
            raise
        raise _native.UsageError(
            f"{error}\nload_module_strict=False cannot help, since optimizer states would be missing as well: load weights "
            "that fit by engine.load_weights(a folder of export_model(), allow_missing=\"head.*\"), and train from there") from None


def tell_of_none(directory, job):
    """Prints that load_checkpoint() has found nothing to load, on rank 0."""
    if job.rank != 0:
        return
    parent, name = os.path.split(os.path.abspath(directory))
    if name in _native.list_checkpoints(parent):
        more = f"; it is a checkpoint itself: load_checkpoint({parent!r}, tag={name!r}) loads it"
    elif _native.list_checkpoints(directory):
        more = " but those that were saved without save_latest, which load by their tags"
    else:
        more = ", and training goes on from the present weights"
    _notice(f"load_checkpoint: {directory} has no checkpoint{more}")


def refuse_other_scheduler(schedule, state):
    """Raises UsageError if the state is that of another class than the program's scheduler: torch would take its values for
    the scheduler's own. The config's schedule takes the step's number alone."""
    saved, own = state.get("lr_scheduler_class"), type(schedule).__name__
    if schedule is not None and state.get("lr_scheduler") and saved not in (None, own) and not isinstance(schedule, ConfigSchedule):
        raise _native.UsageError(f"load_checkpoint: the checkpoint has the state of a {saved}, and lr_scheduler is a {own}: "
                                 "load_lr_scheduler_states=False keeps its own, or give initialize() the saved run's")


def state_of(resumed):
    """Returns the state that state_to_save() has stored. Earlier versions saved it as a pickle: of that, only values that
    need no code are loaded."""
    if resumed.program_state:
        return saved_state.from_bytes(resumed.program_state, _notice)
    if "python" in resumed.client_state:
        return _of_pickle(base64.b64decode(resumed.client_state["python"]), "the client_state", resumed.tag)
    return {}


def _of_pickle(data, what, tag):
    try:
        return torch.load(io.BytesIO(data), weights_only=True)
    except Exception as error:  # noqa: BLE001: torch raises many kinds
        raise _native.UsageError(
            f"{what} in {tag} was saved by an earlier zerocore as a pickle, and has values that only code can load; "
            f"load the checkpoint with the version that saved it, and save it again with plain values ({error})") from None


def random_states(device):
    """Returns the states of this rank's random generators as bytes."""
    states = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if "numpy" in sys.modules:
        states["numpy"] = sys.modules["numpy"].random.get_state(legacy=False)
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return saved_state.to_bytes(states, "random states")


def restore_random(resumed, job, device, seeds_passes):
    """Restores the random generators. On the saved number of data ranks, each rank continues its own streams. On another
    number each data rank derives new streams from the saved ones, except that streams of numpy and Python that were the
    same on all ranks stay the same. All stages of a data rank have equal streams, since they need the same micro-batches.
    `seeds_passes`: passes of the model have seeds of their own."""
    saved = [_random_of(data, resumed.tag) for data in resumed.rank_states]
    saved = [states for states in saved if states]
    if not saved:
        return
    if len(saved) == job.data_size:
        _set_random(saved[job.data_rank], device)
        return
    if job.rank == 0:
        what = "random numbers outside of the model's passes" if seeds_passes else "dropout masks and the like"
        _notice(f"{resumed.tag} was saved on {len(saved)} ranks, and has the states of as many random generators; "
                f"{job.data_size} ranks continue, each with a new stream derived from them: {what} "
                "differ from those of an uninterrupted run")
    mine = saved[job.data_rank % len(saved)]
    seed = int.from_bytes(hashlib.blake2b(
        bytes(mine["torch"].tolist()) + f"{job.data_rank} of {job.data_size}".encode(), digest_size=7).digest(), "little")
    torch.manual_seed(seed)
    for name, reseed in (("python", random.seed), ("numpy", _seed_numpy)):
        if len({saved_state.to_bytes(states.get(name), name) for states in saved}) == 1:
            _set_random({name: mine.get(name)}, device)
        else:
            reseed(seed)


def _random_of(data, tag):
    if not data:
        return None
    return _of_pickle(data, "the random state", tag) if data[:2] == b"PK" else saved_state.from_bytes(data, _notice)


def _set_random(states, device):
    if states.get("torch") is not None:
        torch.set_rng_state(states["torch"])
    if states.get("cuda") is not None and device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"], device)
    if states.get("python") is not None:
        random.setstate(states["python"])
    if states.get("numpy") is not None and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(states["numpy"])


def _seed_numpy(seed):
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)


def _notice(text):
    print(f"zero: {text}", flush=True)


def is_listed(directory, tag, job):
    """Returns whether load_checkpoint() loads this checkpoint only by its tag. Collective."""
    return bool(text_of_root(job, lambda: "listed" if tag in _listed(directory) else ""))


def before_save(directory, tag, save_latest, job):
    """Returns the argument `latest` of after_save(). Lists the tag before its checkpoint exists, so that an
    interrupted save never becomes the newest checkpoint. Collective."""
    latest, problem = None, ""
    if job.rank == 0:
        try:
            latest = _list_ahead(directory, tag, save_latest)
        except (_native.Error, OSError, ValueError) as error:
            problem = str(error)
    _agree_on(problem, job)
    return latest


def _list_ahead(directory, tag, save_latest):
    latest = _read(directory, _LATEST)
    if not save_latest and tag not in _listed(directory) and (latest or "").strip() != tag:
        os.makedirs(directory, exist_ok=True)
        _replace(directory, _LIST, "".join(f"{each}\n" for each in [*_listed(directory), tag]))
    return latest


def after_save(directory, tag, save_latest, latest):
    """Updates the list and "latest" after a save. Call it on rank 0 only."""
    if save_latest:
        if tag in _listed(directory):
            _replace(directory, _LIST, "".join(f"{each}\n" for each in _listed(directory) if each != tag))
    elif latest is not None:
        _replace(directory, _LATEST, latest)
    else:
        with contextlib.suppress(FileNotFoundError):  # a save in the background has not written it yet
            os.remove(os.path.join(directory, _LATEST))


def tag_to_load(directory, job):
    """Returns "" for the newest valid checkpoint, a tag if newer ones were saved without save_latest, and None if
    all were. Collective."""
    def choose():
        tags, listed = _native.list_checkpoints(directory), _listed(directory)
        others = [tag for tag in tags if tag not in listed]
        return "" if not tags or tags[0] not in listed else others[0] if others else "\n"

    choice = text_of_root(job, choose)
    return None if choice == "\n" else choice


def _listed(directory):
    return (_read(directory, _LIST) or "").split("\n")[:-1]


def _read(directory, name):
    try:
        with open(os.path.join(directory, name), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _replace(directory, name, text):
    with whole_file(os.path.join(directory, name)) as path, open(path, "w", encoding="utf-8") as file:
        file.write(text)


def read_weights(directory, tag=None, trained_only=False):
    """Returns {name: tensor} of a checkpoint's master weights, frozen parameters and buffers, in one process: whole
    tensors in host memory, floating-point values as fp32, tied ones under each of their names. With `trained_only`
    without frozen parameters. Reads the newest checkpoint if there is no tag. Raises UsageError if there is no
    checkpoint, and Error for a damaged one."""
    return weights_and_state(directory, tag, trained_only)[0]


def weights_and_state(directory, tag=None, trained_only=False):
    """Returns what read_weights() does, and the state that was saved next to them."""
    directory = folder(directory, "the weights of a checkpoint", "its folder")
    saved = _native.SavedWeights(directory, text_of(tag, ""))
    for notice in saved.notices:
        _notice(notice)
    state = saved_state.from_bytes(saved.program_state() or saved_state.to_bytes({}, ""), _notice)
    frozen, dtypes = set(state.get("bytes", ())), state.get("dtypes", {})
    wanted = [(number, entry.names) for number, entry in enumerate(saved.entries) if not trained_only or entry.is_trained
              or (entry.is_buffer and entry.names[0] not in frozen)]
    whole = {}
    for (_, names), tensor in zip(wanted, saved.read([number for number, _ in wanted])):
        if names[0] in dtypes:  # stored as bytes, in a last dimension
            tensor = tensor.view(-1).view(dtypes[names[0]]).view(tensor.shape[:-1])
        whole.update(dict.fromkeys(names, tensor))
    return whole, state
