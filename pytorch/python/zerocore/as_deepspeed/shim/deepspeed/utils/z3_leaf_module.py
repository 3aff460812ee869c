"""Marks of modules that DeepSpeed gathers as a whole. This engine needs no marks, even for experts without tokens; they
are stored only so that get_z3_leaf_modules(), z3_leaf_module() and z3_leaf_parameter() return them.

The functions that mark return the modules in DeepSpeed's order; those that take names or their ends return (modules, the
names that no module has). If `raise_if_not_found`, they raise ValueError instead: by classes if no module is of any, by
names if one is missing."""

from .._missing import refuse_missing

__getattr__ = refuse_missing(__name__)


def z3_leaf_module(model):
    return getattr(model, "_z3_leaf", False)


def z3_leaf_parameter(model):
    """Returns whether the parameter was in a marked module when its engine was made."""
    return hasattr(model, "ds_z3_leaf_module")


def get_z3_leaf_modules(model):
    return [module for module in model.modules() if z3_leaf_module(module)]


def set_z3_leaf_module(model, flag):
    model._z3_leaf = flag


def _mark(modules, flag):
    """Marks each module once, and returns them."""
    modules = list({id(module): module for module in modules}.values())
    for module in modules:
        set_z3_leaf_module(module, flag)
    return modules


def _children_first(model):
    """The order of Module.apply(), and so of DeepSpeed."""
    for child in model.children():
        yield from _children_first(child)
    yield model


def _is_of(module, classes):
    kind = type(module)
    return any(one in (kind.__name__, f"{kind.__module__}.{kind.__qualname__}") if isinstance(one, str) else
               isinstance(module, one) for one in classes)


def _mark_classes(model, classes, flag, raise_if_not_found):
    wrong = [one for one in classes if not isinstance(one, (type, str))]
    if wrong:
        raise AssertionError(f"leaf_module_classes has a {type(wrong[0]).__name__}; expected a list of classes or their names")
    modules = [module for module in _children_first(model) if _is_of(module, classes)]
    if not modules and raise_if_not_found:
        raise ValueError(f"no module of the {type(model).__name__} is one of {classes}")
    return _mark(modules, flag)


def set_z3_leaf_modules(model, leaf_module_classes, raise_if_not_found=True):
    return _mark_classes(model, leaf_module_classes, True, raise_if_not_found)


def unset_z3_leaf_modules(model, leaf_module_classes, raise_if_not_found=True):
    return _mark_classes(model, leaf_module_classes, False, raise_if_not_found)


def _mark_names(model, names, flag, raise_if_not_found, fits):
    by_name = dict(model.named_modules())
    found = {name: [module for path, module in by_name.items() if fits(path, name)] for name in names}
    missing = [name for name in names if not found[name]]
    modules = _mark([module for name in names for module in found[name]], flag)
    if missing and raise_if_not_found:
        raise ValueError(f"the {type(model).__name__} has no modules with these names: {missing}")
    return modules, missing


def set_z3_leaf_modules_by_name(model, module_names, flag=True, raise_if_not_found=True):
    return _mark_names(model, module_names, flag, raise_if_not_found, str.__eq__)


def set_z3_leaf_modules_by_suffix(model, module_name_suffixes, flag=True, raise_if_not_found=True):
    return _mark_names(model, module_name_suffixes, flag, raise_if_not_found, str.endswith)
