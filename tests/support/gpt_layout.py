"""GPT-2's parameters and the layout rules of the design, computed without the library: bytes that ranks hold and send.

A parameter begins, and a rank's slice ends, at a multiple of 128 elements. A block is a unit; the tied token embedding
is a separate one, held during a micro step; positions and the last norm are the remainder of the embedding and of the
head.
"""

ALIGNMENT = 128


def aligned(elements):
    return -(-elements // ALIGNMENT) * ALIGNMENT


class Layout:
    def __init__(self, layers, channels, vocabulary, positions, ranks, persistence_threshold=0):
        c = channels
        block = [c, c, c * 3 * c, 3 * c, c * c, c, c, c, c * 4 * c, 4 * c, 4 * c * c, c]
        units = {"embedding": [positions * c], **{f"block {i}": block for i in range(layers)}, "head": [c, c]}
        tied = [vocabulary * c]
        self.ranks, self.layers = ranks, layers
        self.parameters = sum(tied) + sum(sum(sizes) for sizes in units.values())
        small = [size for sizes in units.values() for size in sizes if size <= persistence_threshold]
        units = {name: [size for size in sizes if size > persistence_threshold] for name, sizes in units.items()}
        self.tied = self.padded(tied)
        self.persistent = self.padded(small)
        self.positions, self.head = self.padded(units["embedding"]), self.padded(units["head"])
        self.block = self.padded(units["block 0"])
        self.total = self.tied + self.persistent + self.positions + self.head + layers * self.block

    def padded(self, sizes):
        """Returns the elements of a unit with these parameters, over all ranks."""
        return aligned(-(-sum(map(aligned, sizes)) // self.ranks)) * self.ranks

    def gathered_in_stage_3(self, micro_steps, slots):
        """Returns elements per optimizer step: the exact formula, for blocks that use `slots` slots in turn.

        A block is gathered for each forward and each backward, unless it survives: the last `slots` blocks from forward
        to backward, the first ones into the next micro step. Positions and the norm have a slot each, so that they are
        gathered once per step.
        """
        m = micro_steps
        k = min(slots, self.layers)
        assert self.layers == k or self.layers >= 2 * k, "the exact form counts no block twice"
        turns = self.layers if self.layers == k else 2 * m * self.layers - m * k - (m - 1) * k
        return turns * self.block + m * self.tied + self.positions + self.head + self.persistent
