"""Files that are whole under their name, whenever a program reads them."""

import contextlib
import os
import shutil

from . import _native


@contextlib.contextmanager
def whole_file(path):
    """Yields the name of a file next to `path` for the body to write. Then the file takes the place of `path`. If it cannot be
    written, `path` stays as it was, and Error names it with the space that is left."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".tmp-{name}-{os.getpid()}")  # the next save removes it from a folder of checkpoints
    try:
        yield temporary
        os.replace(temporary, path)
    except Exception as problem:  # torch.save() and safetensors raise errors of their own on a full disk
        left = shutil.disk_usage(folder or ".").free
        raise _native.Error(f"{path} cannot be written: {problem}; {left} bytes of its file system were left") from problem
    finally:
        with contextlib.suppress(OSError):
            os.remove(temporary)
