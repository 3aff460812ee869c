"""The end of an engine: by destroy(), or because nothing refers to it any longer. Parameters that every rank has whole
keep their values, in ordinary memory of torch."""

from .passes import remove

_collected = {}  # {number of an engine: native engine} of engines that Python has collected; not all ranks may have yet


def destroy(engine):
    """Ends the engine. Collective."""
    try:
        if engine._guard.failure is None:
            with engine._guarded("destroy"):
                engine._guard.failure = "the engine was destroyed"
    finally:
        remove(engine)
        engine.native = engine._evaluation = None


def collect(engine):
    """Called when nothing refers to the engine any longer, at which time the ranks may be at different places: its
    parameters get their values now, and the engine ends in end_collected()."""
    native, number = engine.__dict__.get("native"), engine.__dict__.get("_number")
    if native is not None and number is not None:
        remove(engine)
        if not engine._evaluation.shares_passes:  # else there are no whole values, and an evaluation may be open
            native.end_parameters()
        if engine._ranks.size > 1:
            _collected[number] = native
    engine.native = None


def at_exit(number, engine):
    """Ends the engine of that number, whose values nobody needs any longer. Collective."""
    _collected.pop(number, None)
    if engine is not None and engine.native is not None:
        engine.native.forget_values()
        destroy(engine)


def end_collected(job):
    """Ends the engines that all ranks have collected, in the order in which they were made. Collective."""
    if not job.sum(float(len(_collected))):
        return
    newest = int(job.sum(float(max(_collected, default=0))))  # no smaller than any rank's
    for number in range(newest + 1):
        if job.sum(float(number in _collected)) == job.size:
            del _collected[number]
