"""The table of all changes that scripts and libraries need to run on the engine's ranks as they are. zerocore_startup.py
applies a row when its module is complete. This file imports nothing of zerocore, because Python may load it at its start;
a function that is named by a text is one of a file of this folder or of zerocore, which is imported then."""

import functools
import os
import sys

from zerocore_startup import put


def export_ranks_of_mpirun():
    """Sets the variables of torchrun that say which rank this process is, if mpirun started it: scripts read them in their
    first lines. Those that are set stay. How ranks meet becomes known when they do (distributed.export_ranks())."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    for own in (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
                ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")):
        values = [os.environ.get(name) for name in own]
        if all(values) and "RANK" not in os.environ and "WORLD_SIZE" not in os.environ:
            os.environ.update(zip(names, values))


def give_local_rank(argparse):
    """Adds --local_rank to the arguments for parsers that have this option; scripts without the option do not get it."""
    parse = argparse.ArgumentParser.parse_known_args
    names = ("--local_rank", "--local-rank")

    @functools.wraps(parse)
    def parse_known_args(self, args=None, namespace=None):
        name = next((name for name in names if name in self._option_string_actions), None)
        if name is not None and args is None and "LOCAL_RANK" in os.environ:
            given = sys.argv[1:]
            if not any(word.split("=")[0] in names for word in given):
                args = [f"{name}={os.environ['LOCAL_RANK']}", *given]
        return parse(self, args, namespace)

    put(argparse.ArgumentParser, "parse_known_args", parse_known_args)


def let_ranks_meet(distributed):
    """Makes torch's group of a script over gloo if it asks for nccl and torch has no GPU, as deepspeed.init_distributed()
    does, and sets MASTER_ADDR and MASTER_PORT, which mpirun does not."""
    init = distributed.init_process_group

    @functools.wraps(init)
    def init_process_group(backend=None, *args, **kwargs):
        import torch
        if backend == "nccl" and not torch.cuda.is_available():
            backend = "gloo"
        if "MASTER_PORT" not in os.environ:
            from zerocore.distributed import export_ranks
            from zerocore.launch import by_mpi
            if by_mpi():
                export_ranks()
        return init(backend, *args, **kwargs)

    put(distributed, "init_process_group", init_process_group)


# Module, change, and the reason.
ROWS = (
    ("argparse", give_local_rank,
     "DeepSpeed's launcher gives every script the option --local_rank"),
    ("torch.distributed", let_ranks_meet,
     "mpirun sets no MASTER_ADDR and MASTER_PORT, and CPU ranks have no nccl"),
    ("deepspeed", "zerocore.views.guard",
     "scripts read repr(), data_ptr() and is_shared() of parameters that are sharded at rest, which DeepSpeed's have"),
    ("accelerate.state", "accelerate_ranks.see_cpu_ranks",
     "accelerate finds no backend without a GPU, and takes each rank for a job of its own"),
    ("accelerate.utils", "accelerate_ranks.complete",
     "imported before install(), it has not found DeepSpeed, and lacks its wrappers"),
    ("accelerate.utils.deepspeed", "accelerate_loops.read_config_files",
     "configs are read by the library's reader, which accepts comments and names the user's own lines"),
    ("accelerate.utils.deepspeed", "accelerate_loops.step_after_clipping",
     "with FSDP's keys the step comes after accelerator.clip_grad_norm_()"),
    ("accelerate.utils.dataclasses", "accelerate_loops.start_fsdp_alike",
     "FSDP's plugin sends rank 0's weights to the others, which needs a GPU; the engine has its own"),
    ("accelerate.accelerator", "accelerate_ranks.complete",
     "imported before install(), it has not found DeepSpeed, and lacks its wrappers"),
    ("accelerate.accelerator", "accelerate_loops.make_fsdp_a_stage",
     "FSDP's settings become a stage"),
    ("accelerate.accelerator", "accelerate_loops.clip_by_engine",
     "clip_grad_norm_() clips with FSDP's keys, and a notice says that it does not with DeepSpeed's"),
    ("accelerate.accelerator", "accelerate_loops.accumulate_by_hand",
     "passes inside no_sync() wait for a step; accelerate's backward() makes one after each"),
    ("accelerate.accelerator", "trainer.give_values_back",
     "the Trainer frees its engine before it makes the next one of the same model"),
    ("transformers.integrations.deepspeed", "trainer.complete_configs",
     "imported before install(), it has not found DeepSpeed, and its configs are empty classes"),
    ("transformers.integrations.deepspeed", "rank_independence.adapt_config",
     "the number of micro-batches is the rank's own with zero_core.rank_independent"),
    ("transformers.integrations.deepspeed", "trainer.fill_fsdp_values",
     "the Trainer's arguments go before the values that FSDP's keys have left open"),
    ("transformers.training_args", "trainer.adapt_arguments",
     "TrainingArguments(fsdp=...) becomes a stage, and bf16 needs no GPU"),
    ("transformers.modeling_utils", "trainer.adapt_saving",
     "accelerate.get_state_dict() returns a state on rank 0 alone, and save_pretrained() would read sharded weights"),
    ("transformers.trainer", "accelerate_ranks.complete",
     "imported before install(), it has not found DeepSpeed, and lacks its wrappers"),
    ("transformers.trainer", "trainer.adapt_init",
     "evaluation before training, optimizers=(...) and a second train(), which transformers leaves to DeepSpeed or drops"),
    ("transformers.trainer", "rank_independence.adapt_trainer",
     "samples and losses do not depend on the number of ranks with zero_core.rank_independent"),
    *((f"{package}.strategies.deepspeed", "lightning.allow_cpu_ranks",
       "Lightning allows its DeepSpeed strategy only on GPUs")
      for package in ("lightning.pytorch", "pytorch_lightning", "lightning.fabric", "lightning_fabric")),
    *((f"{package}.strategies.deepspeed", "lightning.end_engines",
       "each fit(), validate(), test() and predict() of one Trainer makes an engine of the same model")
      for package in ("lightning.pytorch", "pytorch_lightning")),
    *((f"{package}.strategies.deepspeed", "lightning.step_engine",
       "Fabric calls optimizer.step(), which in DeepSpeed is a part of the engine's")
      for package in ("lightning.fabric", "lightning_fabric")),
    *((f"{package}.plugins.precision.deepspeed", "lightning.divide_once",
       "Lightning divides the loss by accumulate_grad_batches itself")
      for package in ("lightning.pytorch", "pytorch_lightning")),
    *((f"{package}.plugins.precision.deepspeed", "lightning.clip",
       "clip_gradients() of a script has no effect under Lightning's DeepSpeedPrecision")
      for package in ("lightning.pytorch", "pytorch_lightning")),
    *((f"{package}.strategies.deepspeed", "lightning.accumulate",
       "Lightning zeroes gradients when an epoch begins, also within a step of DeepSpeed's")
      for package in ("lightning.pytorch", "pytorch_lightning")),
)
