#!/usr/bin/env python3
"""Turns a DeepSpeed checkpoint of ZeRO stage 1, 2 or 3, or a universal one, into a checkpoint of ZeroCore.

    pip install torch numpy xxhash
    python3 examples/deepspeed_checkpoint/convert.py DEEPSPEED_DIR OUTPUT [--tag TAG] [--rename OLD=NEW ...]

DEEPSPEED_DIR is the folder given to save_checkpoint(), or the folder of one tag in it, or an output folder of Hugging
Face's Trainer or one of its checkpoint-N. Parameters keep their names; --rename changes how they begin ("--rename
module.=" drops a prefix). The result holds master weights, moments, buffers, step, samples, loss scale and the client
state, and loads at any stage and number of ranks: --checkpoint OUTPUT in train_gpt, Engine::resume(OUTPUT), and
engine.load_checkpoint(OUTPUT) in Python.

DeepSpeed itself is not needed, and no code from its files is run (pickles.py). State that cannot be converted is named.
Tensors stay in their files until they are written, one after another.
"""

import argparse
import pathlib
import re

import optimizers
import output
from checkpoint import Checkpoint
from problems import listed, notice, refuse


def renamed(parameters, renames):
    result = {}
    for name, parameter in parameters.items():
        for old, new in renames:
            if name.startswith(old):
                name = new + name[len(old):]
                break
        if name in result:
            refuse(f"--rename gives {name} twice")
        result[name] = parameter
    return result


def is_checkpoint(folder):
    return any(folder.glob("*_model_states.pt"))


def saved_tag(path):
    """Returns the tag in `latest` without a byte order mark or line end; None if the file does not exist."""
    file = path / "latest"
    return file.read_bytes().decode("utf-8-sig", "replace").strip(" \t\r\n\0") if file.is_file() else None


def newest_of_trainer(path):
    """Returns the newest folder checkpoint-N of Hugging Face's Trainer that holds a checkpoint of DeepSpeed."""
    numbers = {child: re.fullmatch(r"checkpoint-(\d+)", child.name) for child in path.iterdir() if child.is_dir()}
    found = [child for child, number in numbers.items() if number and saved_tag(child)]
    return max(found, key=lambda child: int(numbers[child].group(1)), default=None)


def find(path, tag):
    """Returns the folder of one tag."""
    if not path.is_dir():
        refuse(f"{path}: there is no such folder")
    if is_checkpoint(path):
        return path
    asked = tag
    if tag is None:
        tag = saved_tag(path)
    if not tag and (newest := newest_of_trainer(path)):
        notice(f"taking {newest.name}, the newest one in {path}; --tag names another one")
        return find(newest, None)
    if tag and (path / tag).is_dir():
        if is_checkpoint(path / tag) or asked is None:
            return path / tag
        return find(path / tag, None)
    tags = sorted(child.name for child in path.iterdir() if child.is_dir() and (is_checkpoint(child) or saved_tag(child)))
    refuse(f"{path}: " + (f"the checkpoint {tag} is not in it" if tag else "no DeepSpeed checkpoint is in it by `latest`") +
           (f"; name one with --tag, of {listed(tags)}" if tags else "; name one with --tag, or the folder that has it"))


def read(folder, optimizer):
    try:
        return Checkpoint(folder, optimizer)
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        refuse(f"{folder}: is damaged, or laid out as no release that is known ({type(error).__name__}: {error}); "
               "DeepSpeed's ds_to_universal may make a universal checkpoint of it, which converts too")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("deepspeed", type=pathlib.Path, help="DeepSpeed's directory, or the folder of one tag")
    parser.add_argument("output", type=pathlib.Path, help="a new directory")
    parser.add_argument("--tag", help="which one; default: what `latest` says")
    parser.add_argument("--rename", metavar="OLD=NEW", action="append", default=[],
                        help="names that begin with OLD begin with NEW instead")
    parser.add_argument("--optimizer", choices=optimizers.STATES,
                        help="what the states are of; default: what the saved config says, else what they look like")
    arguments = parser.parse_args()
    if any("=" not in rename for rename in arguments.rename):
        parser.error("--rename wants OLD=NEW")
    checkpoint = read(find(arguments.deepspeed, arguments.tag), arguments.optimizer)
    checkpoint.parameters = renamed(checkpoint.parameters, [rename.split("=", 1) for rename in arguments.rename])
    tag = f"step-{checkpoint.step}"
    output.write(checkpoint, arguments.output, tag)
    buffers = sum(parameter.buffer for parameter in checkpoint.parameters.values())
    print(f"wrote {arguments.output / tag}: {len(checkpoint.parameters) - buffers} parameters" +
          (f" and {buffers} buffers" if buffers else "") + f" after step {checkpoint.step}")


if __name__ == "__main__":
    main()
