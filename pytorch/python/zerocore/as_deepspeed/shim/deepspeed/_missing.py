"""What this package does not have is named, with the reason."""


def refuse_missing(module):
    def missing(name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"{module}.{name}: zerocore.as_deepspeed does not have this name of DeepSpeed")
    return missing
