"""Marks of modules that DeepSpeed gathers as a whole. This engine needs no marks, even for experts without tokens; they
are stored only so that get_z3_leaf_modules() and z3_leaf_module() return them."""

from .._missing import refuse_missing

__getattr__ = refuse_missing(__name__)


def z3_leaf_module(model):
    return getattr(model, "_z3_leaf", False)


def z3_leaf_parameter(parameter):
    """Returns False: all parameters are gathered in the same way."""
    return False


def set_z3_leaf_module(model, flag):
    model._z3_leaf = flag


def _marked(model, is_meant, flag, named):
    modules = [module for name, module in model.named_modules() if is_meant(name, module)]
    if not modules:
        raise ValueError(f"no module of the {type(model).__name__} is one of {named}")
    for module in modules:
        set_z3_leaf_module(module, flag)
    return modules


def _is_of(classes):
    """Returns a test for modules of these classes, given as classes or names."""
    def is_of(_, module):
        kind = type(module)
        return any(one in (kind.__name__, f"{kind.__module__}.{kind.__qualname__}") if isinstance(one, str) else
                   isinstance(module, one) for one in classes)
    return is_of


def set_z3_leaf_modules(model, leaf_module_classes):
    return _marked(model, _is_of(leaf_module_classes), True, leaf_module_classes)


def unset_z3_leaf_modules(model, leaf_module_classes):
    return _marked(model, _is_of(leaf_module_classes), False, leaf_module_classes)


def set_z3_leaf_modules_by_name(model, module_names):
    return _marked(model, lambda name, _: name in module_names, True, module_names)


def set_z3_leaf_modules_by_suffix(model, module_name_suffixes):
    return _marked(model, lambda name, _: name.endswith(tuple(module_name_suffixes)), True, module_name_suffixes)


def get_z3_leaf_modules(model):
    return [module for module in model.modules() if z3_leaf_module(module)]
