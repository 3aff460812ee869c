"""save_checkpoint(save_latest=False): checkpoints that load_checkpoint() takes by their tag alone."""

import contextlib
import os

from . import _native
from .ranks import text_of_root

_LIST = ".not-latest"  # tags, one in a line, in the folder of the checkpoints
_LATEST = "latest"


def is_listed(directory, tag, job):
    """Whether load_checkpoint() takes the checkpoint by its tag alone. Collective."""
    return bool(text_of_root(job, lambda: "listed" if tag in _listed(directory) else ""))


def before_save(directory, tag, save_latest):
    """On rank 0. Returns what after_save() needs. The tag is listed before its checkpoint is there."""
    latest = _read(directory, _LATEST)
    if not save_latest and tag not in _listed(directory) and (latest or "").strip() != tag:
        os.makedirs(directory, exist_ok=True)
        _replace(directory, _LIST, "".join(f"{each}\n" for each in [*_listed(directory), tag]))
    return latest


def after_save(directory, tag, save_latest, latest):
    """On rank 0."""
    if save_latest:
        if tag in _listed(directory):
            _replace(directory, _LIST, "".join(f"{each}\n" for each in _listed(directory) if each != tag))
    elif latest is not None:
        _replace(directory, _LATEST, latest)
    else:
        with contextlib.suppress(FileNotFoundError):  # a save in the background has not written it yet
            os.remove(os.path.join(directory, _LATEST))


def tag_to_load(directory, job):
    """"" for the newest valid checkpoint, a tag where newer ones were saved without save_latest, and None where there
    are no others than such. Collective."""
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
    temporary = os.path.join(directory, f".tmp-{name}")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, os.path.join(directory, name))
