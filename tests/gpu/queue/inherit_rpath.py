"""Makes libraries search the program's folders for their own libraries: turns their RUNPATH into an RPATH. A RUNPATH ends
the search, while after an RPATH it continues with the program's. Usage: inherit_rpath.py FILE... (64-bit ELF; others stay
unchanged)"""

import struct
import sys

PT_DYNAMIC, DT_NULL, DT_RPATH, DT_RUNPATH = 2, 0, 15, 29

for path in sys.argv[1:]:
    with open(path, "r+b") as file:
        data = bytearray(file.read())
        if data[:5] != b"\x7fELF\x02":
            continue
        (headers,) = struct.unpack_from("<Q", data, 32)
        size, count = struct.unpack_from("<HH", data, 54)
        for at in range(headers, headers + size * count, size):
            kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", data, at)
            for entry in range(offset, offset + length, 16) if kind == PT_DYNAMIC else ():
                (tag,) = struct.unpack_from("<q", data, entry)
                if tag == DT_NULL:
                    break
                if tag == DT_RUNPATH:
                    struct.pack_into("<q", data, entry, DT_RPATH)
        file.seek(0)
        file.write(data)
