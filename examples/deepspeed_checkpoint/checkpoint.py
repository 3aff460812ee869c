"""The checkpoint that DeepSpeed wrote for one tag."""

import client_state
import layouts
import optimizers
from problems import listed, notice, refuse


class Checkpoint:
    def __init__(self, folder, optimizer=None):
        self.folder, self.parameters = folder, {}
        universal = (folder / "zero").is_dir()
        model_files, optim_files = files_of(folder, universal)
        self.model = model_files[0]
        config = self.model.get("ds_config")
        self.config = config if isinstance(config, dict) else {}
        shapes = self.group_shapes()
        optim = [self.optimizer_state(file) for file in optim_files]
        self.scaler = optim[0].get("loss_scaler") if optim else None
        if universal:
            found = layouts.universal_kinds(folder)
        else:
            found = optimizers.states_in(layouts.group_states(optim[0])[0])
        self.optimizer, self.states = optimizers.choose(folder, self.config, optimizer, found)
        named = {name for group in shapes for name in group}
        if universal:
            others = set(self.model.get("shared_params") or {}) - named
            step = layouts.read_universal(folder, self.states, self.parameters, others)
        else:
            self.check_ranks(optim)
            stage_3 = "fp32_flat_groups" in optim[0]
            read = layouts.read_stage_3 if stage_3 else layouts.read_stage_1_or_2
            read(folder, optim, self.states, self.parameters, shapes)
            step = layouts.step_of(optim[0])
        self.without_frozen = layouts.read_frozen(model_files, self.model, self.parameters)
        layouts.read_buffers(self.model, self.parameters)
        missing = [name for name in sorted(named) if name not in self.parameters]
        if missing:
            refuse(f"{folder}: no values of {listed(missing)}")
        self.count(step)
        self.program_state = client_state.of_program(self.model, self.config)

    def group_shapes(self):
        """Returns the shapes of each optimizer group. Releases before 0.3.16 have one dictionary instead of a list."""
        shapes = self.model.get("param_shapes")
        if shapes is None:
            refuse(f"{self.folder}: its model file has no param_shapes, as releases before 0.3.11 wrote, or runs without "
                   "ZeRO; resume and save it with a later release of DeepSpeed, at stage 1 or above, first")
        return [shapes] if isinstance(shapes, dict) else shapes

    def optimizer_state(self, file):
        state = file.get("optimizer_state_dict")
        if not isinstance(state, dict):
            refuse(f"{self.folder}: a file of optimizer state has no optimizer_state_dict")
        return state

    def check_ranks(self, optim):
        count = optim[0].get("partition_count")
        count = max(count) if isinstance(count, (list, tuple)) and count else count
        expected = self.model.get("dp_world_size", count)
        if expected is not None and len(optim) != expected:
            refuse(f"{self.folder}: {len(optim)} files of optimizer state, {expected} ranks wrote some")

    def count(self, step):
        """Counts steps and samples. The client may have set the samples to None."""
        if not isinstance(self.model.get("global_steps"), int):
            refuse(f"{self.folder}: its model file has no global_steps")
        self.step = self.model["global_steps"]
        self.applied = int(step) if step is not None else self.step - int(self.model.get("skipped_steps") or 0)
        samples, batch = self.model.get("global_samples"), self.config.get("train_batch_size")
        if not isinstance(samples, int):
            samples = self.step * batch if isinstance(batch, int) else 0
            notice(f"the model file does not say after how many samples it was saved; taken: {samples}")
        self.samples = samples

    def loss_scaler(self):
        """Returns the state of a dynamic loss scaler in the manifest's form, None if the scale is constant."""
        fields = {"scale": "cur_scale", "hysteresis": "cur_hysteresis", "iteration": "cur_iter",
                  "last_overflow": "last_overflow_iter"}
        values = {ours: getattr(self.scaler, theirs, None) for ours, theirs in fields.items()}
        if any(not isinstance(value, (int, float)) for value in values.values()):
            return None
        return {name: repr(float(value) if name == "scale" else int(value)) for name, value in values.items()}


def files_of(folder, universal):
    """Returns the model's files (one, or one per rank at stage 3) and the optimizer's."""
    model_paths = layouts.sorted_by_rank(folder.glob("zero_pp_rank_*_model_states.pt")) or list(
        folder.glob("mp_rank_00_model_states.pt"))
    optim_paths = [] if universal else layouts.optimizer_files(folder)
    for pattern, what in (("*mp_rank_01*", "tensor parallelism"), ("layer_*", "pipeline or expert parallelism")):
        if list(folder.glob(pattern)):
            refuse(f"{folder}: {what} is not supported")
    if not model_paths or not (universal or optim_paths):
        refuse(f"{folder}: holds no DeepSpeed ZeRO checkpoint")
    contents = [[layouts.load(path) for path in paths] for paths in (model_paths, optim_paths)]
    for path, content in zip(model_paths + optim_paths, contents[0] + contents[1]):
        if not isinstance(content, dict):
            refuse(f"{path}: holds {content!r}, not what DeepSpeed saves")
    return contents
