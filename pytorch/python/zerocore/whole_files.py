"""Files of weights for other programs: under their name they are whole."""

import contextlib
import os
import shutil

from . import _native


@contextlib.contextmanager
def whole_file(path):
    """Yields the name of a file next to `path` for the body to write. Then the file takes the place of `path`. If it cannot be
    written, `path` stays as it was, and Error names it with the space that is left."""
    path = os.fspath(path)
    temporary = f"{path}.tmp-{os.getpid()}"
    try:
        yield temporary
        os.replace(temporary, path)
    except Exception as problem:  # torch.save() and safetensors raise errors of their own on a full disk
        left = shutil.disk_usage(os.path.dirname(path) or ".").free
        raise _native.Error(f"{path} cannot be written: {problem}; {left} bytes of its file system were left") from problem
    finally:
        with contextlib.suppress(OSError):
            os.remove(temporary)
