"""Passes the config of initialize(), in any of its forms, to the library's reader. Nothing is decided here."""

import base64
import binascii
import collections.abc
import copy
import dataclasses
import json
import os

from . import _native
from .errors import AssertedUsage


@dataclasses.dataclass
class Source:
    """The config's source: a file by its path, or JSON by its text and the name that messages give it."""

    path: str | None = None
    text: str = ""
    name: str = ""
    overrides: dict = dataclasses.field(default_factory=dict)  # values as text, by the paths of keys
    given: dict | None = None  # the program's own dict

    def read(self):
        """Returns the settings that the library's reader makes of the config. Raises ConfigError with file and line."""
        if self.path is not None:
            return _native.Config.of_file(self.path, self.overrides)
        return _native.Config.of_text(self.text, self.name, self.overrides)

    def as_dict(self):
        """Returns the config as a dict: the program's own dict if it gave one."""
        if self.given is None:
            self.given = json.loads(_native.Config.text_as_json(self.text, self.name) if self.path is None
                                    else _native.Config.file_as_json(self.path))
        return self.given

    def with_overrides(self, overrides):
        """Returns this source with other values for some keys: {path of the key: value as text}."""
        return dataclasses.replace(self, overrides={**self.overrides, **overrides})


def find(args, config):
    """Returns the Source that the arguments of initialize() name: a path, JSON, base64 of it, a dict, or
    OmegaConf's."""
    name, of_args = "config", getattr(args, "deepspeed_config", None) or getattr(args, "deepscale_config", None)
    if config is None:
        config, name = of_args, "args.deepspeed_config"
    elif of_args is not None and of_args != config:
        raise AssertedUsage("zerocore.initialize: there are two configs, the argument config and args.deepspeed_config, and no "
                            "way to choose: leave one out")
    if config is None:
        raise _native.ConfigError("zerocore.initialize: no config: give config= a dict or the path of a JSON file, "
                                  "or args with deepspeed_config")
    if isinstance(config, Source):
        return config
    if isinstance(config, collections.abc.Mapping):
        plain = _plain(config, name)
        return Source(text=json.dumps(plain), name=name, given=plain)
    if not isinstance(config, (str, os.PathLike)):
        raise _native.ConfigError(f"zerocore.initialize: {name} is a {type(config).__name__}; expected a path, a "
                                  "dict, or JSON as text")
    path = os.fspath(config)
    if isinstance(config, os.PathLike) or os.path.exists(path):
        return Source(path=path, name=path)
    text = path if "{" in path else _decoded(path)
    return Source(path=path, name=path) if text is None else Source(text=text, name=name)


def _decoded(text):
    """Returns base64-encoded JSON as text, or None."""
    try:
        decoded = base64.urlsafe_b64decode(text.encode()).decode()
    except (binascii.Error, UnicodeError):
        return None
    return decoded if "{" in decoded else None


def _plain(value, path):
    """Returns mappings of any kind (OmegaConf's DictConfig too) as dicts, and values as JSON has them."""
    if isinstance(value, collections.abc.Mapping):
        return {str(key): _plain(value[key], f"{path}.{key}") for key in value}
    if isinstance(value, collections.abc.Sequence) and not isinstance(value, (str, bytes)):
        return [_plain(item, path) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:  # a number of numpy or torch
        value = value.item()
    if isinstance(value, float) and value == float("inf") and path.endswith(".steps_per_print"):  # accelerate's value for never
        return 0
    if value is None or isinstance(value, (bool, int, str)) or isinstance(value, float) and value - value == 0:
        return copy.copy(value)
    raise _native.ConfigError(f"{path}: {value!r} of type {type(value).__name__} is no value of a config; expected a "
                              "finite number, a text, true or false, null, a list or a dict")
