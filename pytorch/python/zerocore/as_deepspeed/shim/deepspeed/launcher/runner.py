from .._missing import refuse_missing

__getattr__ = refuse_missing(__name__)
DEEPSPEED_ENVIRONMENT_NAME = ".deepspeed_env"  # accelerate's launcher names it
