// The calls of Engine, forwarded to the parts of the engine; those of the handles are in
// handles.cpp.

#include <cmath>

#include "zero/engine/engine_core.h"

namespace zero {

using detail::Call;

namespace {

// "" would be the root of the file system, or the current folder, depending on the call.
void refuse_empty(const std::string& path, const char* call) {
  if (path.empty())
    throw UsageError(std::string("Engine::") + call +
                     "() was called with an empty path; give it the path of a folder");
}

// Runs a call for a parameter on the ranks that have it: with a pipeline, those of a stage, which
// then send the result to the other stages. An unknown name is for the call to refuse.
void on_stage_of(detail::EngineCore& core, std::string_view name, std::span<float> result,
                 const std::function<void()>& act) {
  detail::TrainState& train = core.train();
  const int home = train.stages.empty() ? -1 : train.stages.home_of(name).place;
  if (home < 0 || (result.empty() ? train.stages.has(name) : home == train.plan.on.pipe.rank))
    act();
  if (home >= 0 && !result.empty())
    train.pipe()->broadcast("the values of " + std::string(name), std::as_writable_bytes(result),
                            home);
}

constexpr const char* use_a_checkpoint =
    "save a checkpoint, of which `zero checkpoint export` makes a model";

}  // namespace

Engine::Engine(Runtime& runtime, const ModelSpec& model, Config config)
    : core_(std::make_unique<detail::EngineCore>(runtime.core(), model, std::move(config))) {
  for (int u = 0; u < std::ssize(core_->train().model.units); ++u)
    core_->units().push_back(Unit(core_->link(), u));
}
Engine::Engine(Engine&&) noexcept = default;
Engine::~Engine() = default;

void Engine::initialize(const std::function<void(ParamShard)>& fill) {
  core_->begin_call(Call::initialize);
  core_->weights().initialize(fill);
}
void Engine::initialize_rest(const std::function<void(ParamShard)>& fill) {
  core_->begin_call(Call::initialize_rest);
  core_->weights().initialize_rest(fill);
}
void Engine::take_memory() {
  core_->take_memory();
}
void Engine::load_weights(const std::string& file,
                          const std::function<std::string(std::string_view)>& name_in_file) {
  load_weights(file, LoadOptions{.name_in_file = name_in_file});
}
std::vector<std::string> Engine::load_weights(const std::string& file, const LoadOptions& options) {
  refuse_empty(file, "load_weights");
  core_->begin_call(Call::load_weights);
  std::vector<std::string> missing = core_->weights().load(file, options);
  core_->accumulation().note_new_values();
  return missing;
}
std::span<std::byte> Engine::buffer_bytes(std::string_view name) {
  return core_->train().buffers.bytes(name);
}

void* Engine::raw_buffer(std::string_view name, DType dtype) {
  return core_->train().buffers.address(name, dtype);
}

const void* Engine::raw_resident(std::string_view name, DType dtype) {
  const void* address = core_->scopes().resident(name, dtype);
  if (address != nullptr) core_->finish_work();
  return address;
}

std::span<Unit> Engine::units() {
  return core_->units();
}
std::vector<Unit*> Engine::backward_units() {
  std::vector<Unit*> units;
  for (const detail::ScopeStep& step : detail::backward_steps(core_->train().plan.inputs))
    units.push_back(&core_->units()[step.unit]);
  return units;
}
std::vector<Unit*> Engine::forward_order() {
  std::vector<Unit*> units;
  for (const int unit : core_->train().plan.inputs.order) units.push_back(&core_->units()[unit]);
  return units;
}
Unit& Engine::unit(std::string_view name) {
  const detail::Model& model = core_->train().model;
  if (const int index = model.find_unit(name); index >= 0) return core_->units()[index];
  if (const detail::StageParts& stages = core_->train().stages; stages.whole.find_unit(name) >= 0)
    throw UsageError("unit \"" + std::string(name) +
                     "\" is in another stage of the pipeline than " + std::to_string(stages.own) +
                     ", that of this rank");
  throw UsageError("no unit is named \"" + std::string(name) + "\"" +
                   detail::hint_among(model.units, name));
}

MicroSteps Engine::micro_steps() {
  return {core_->link(), core_->train().plan.own_micro_steps()};
}
Tasks Engine::tasks() {
  return Tasks(core_->link());
}
MicroStep Engine::begin_micro_step(bool last) {
  return {core_->link(), core_->accumulation().begin_micro_step(last)};
}
bool Engine::more_micro_steps() {
  return core_->accumulation().more_micro_steps();
}
void Engine::settle() {
  core_->accumulation().come_to_rest();
}
GroupValues Engine::next_values(std::string_view group, std::int64_t ahead) {
  return core_->stepper().next_values(group, ahead);
}
float Engine::loss_scale() {
  return core_->stepper().loss_scale();
}
StepTicket Engine::step(const StepOptions& options) {
  StepTicket ticket(core_->stepper().step(options));
  core_->name_idle_keys();
  return ticket;
}
bool Engine::drop_gradients() {
  core_->guard().check(Call::drop_gradients);
  const bool had_some = core_->accumulation().drop_gradients();
  if (had_some) core_->transfers().note_dropped();
  return had_some;
}
Evaluation Engine::evaluate() {
  core_->evaluations().begin();
  return Evaluation(core_->link());
}
FullModel Engine::materialize(int only_rank) {
  core_->train().refuse_in_stages("Engine::materialize()", "no rank runs the whole model");
  core_->begin_call(Call::materialize);
  core_->weights().materialize(only_rank);
  return FullModel(core_->link());
}
void Engine::export_model(const std::string& directory, const ExportOptions& options) {
  refuse_empty(directory, "export_model");
  core_->train().refuse_in_stages("Engine::export_model()", use_a_checkpoint);
  core_->begin_call(Call::export_model);
  if (options.max_file_bytes < 0)
    throw UsageError("ExportOptions::max_file_bytes is " + std::to_string(options.max_file_bytes) +
                     "; expected a number of bytes, or 0 for no limit");
  core_->verify_before_save();
  core_->weights().export_model(directory, options);
}
void Engine::stream_weights(const StreamOptions& options,
                            const std::function<void(const WeightPiece&)>& visitor) {
  core_->train().refuse_in_stages("Engine::stream_weights()", use_a_checkpoint);
  core_->begin_call(Call::stream_weights);
  core_->weights().stream(options, visitor);
}
ChangeStream Engine::changes(std::optional<std::uint64_t> since, const StreamOptions& options) {
  core_->train().refuse_in_stages("Engine::changes()", use_a_checkpoint);
  core_->begin_call(Call::changes);
  ChangeStream stream(core_->link());
  stream.windows_ = core_->weights().begin_changes(since, options, stream.digest_);
  if (stream.windows_ != nullptr) stream.since_ = since;
  return stream;
}
void Engine::gather(std::string_view name, std::span<std::byte> whole, int only_rank) {
  core_->train().refuse_in_stages("Engine::gather()", "use Engine::read()");
  core_->begin_call(Call::gather);
  core_->weights().gather(name, whole, only_rank);
}
void Engine::read(std::string_view name, std::string_view what, std::span<float> whole) {
  core_->begin_call(Call::read);
  const double scale = what == "grad" ? core_->stepper().inverse_gradient_scale() : 1;
  on_stage_of(*core_, name, whole,
              [&] { core_->weights().read(name, what, whole, static_cast<float>(scale)); });
}
void Engine::read_gradient(std::string_view name, std::span<float> whole,
                           std::optional<double> mean_over) {
  core_->begin_call(Call::read_gradient);
  if (mean_over && !(*mean_over > 0 && std::isfinite(*mean_over)))
    throw UsageError("Engine::read_gradient(): mean_over is " + std::to_string(*mean_over) +
                     "; expected a number above 0");
  const detail::TrainState& train = core_->train();
  const int pending = core_->accumulation().ended_micro_steps();
  if (pending == 0) return read(name, "grad", whole);
  if (train.plan.rank_independent() && (!train.last_micro_step || mean_over))
    throw UsageError(
        "Engine::read_gradient() was called with zero_core.rank_independent " +
        std::string(mean_over ? "and another mean than that over all micro batches"
                              : "before the last micro step, in which ranks may have no batch") +
        ": read it after Engine::step(), or in StepOptions::inspect");
  if (train.last_micro_step || train.plan.completes_each())
    return core_->weights().read(
        name, "grad", whole, static_cast<float>(core_->stepper().pending_scale(mean_over, true)));
  if (train.plan.sync != GradientSync::last)
    throw UsageError(
        "Engine::read_gradient() was called among micro steps, and zero_core.gradient_sync "
        "\"inner\" sums gradients over all ranks in the last one alone: read it after the step");
  core_->weights().read_unreduced_gradient(
      name, whole, static_cast<float>(core_->stepper().pending_scale(mean_over, false)));
}
void Engine::adopt(std::string_view name) {
  core_->begin_call(Call::adopt);
  on_stage_of(*core_, name, {}, [&] { core_->weights().adopt(name); });
}
void Engine::write(std::string_view name, std::span<const float> whole) {
  core_->begin_call(Call::write);
  on_stage_of(*core_, name, {}, [&] { core_->weights().write(name, whole); });
  core_->accumulation().note_new_values();
}
void Engine::visit(const ElementVisitor& visitor, Visit gradients) {
  core_->begin_call(Call::visit);
  const bool with = gradients == Visit::with_gradients;
  std::optional<float> scale;
  if (with) scale = static_cast<float>(core_->stepper().inverse_gradient_scale());
  if (core_->weights().visit(visitor, scale)) core_->accumulation().note_new_values();
}
void Engine::write_state(std::string_view name, std::string_view state,
                         std::span<const float> whole) {
  core_->begin_call(Call::write_state);
  on_stage_of(*core_, name, {}, [&] { core_->weights().write_state(name, state, whole); });
}
std::uint64_t Engine::digest() {
  core_->begin_call(Call::digest);
  return core_->weights().digest();
}

void Engine::open_checkpoints(const std::string& directory) {
  refuse_empty(directory, "open_checkpoints");
  core_->begin_call(Call::open_checkpoints);
  core_->checkpoints().open(directory);
}
SaveTicket Engine::save_checkpoint(const std::string& directory, const SaveOptions& options) {
  refuse_empty(directory, "save_checkpoint");
  core_->begin_call(Call::save_checkpoint);
  if (options.keep < 0)
    throw UsageError("SaveOptions::keep is " + std::to_string(options.keep) +
                     "; expected a number of checkpoints, or 0 for all");
  // Streams order the device's copies after the steps; copies by the host need an idle device.
  if (!core_->checkpoints().copies_behind_steps(options)) core_->finish_work();
  core_->train().require_values(" to save");
  core_->verify_before_save();
  core_->checkpoints().finish_pending();
  const std::int64_t begin = detail::steady_nanoseconds();
  const auto save = core_->checkpoints().save(directory, options);
  core_->note_save(begin);
  return {core_->link(), save};
}
bool Engine::peer_copy_due() const {
  const CoreOptions& options = config().zero_core;
  return options.peer_copies > 0 && step_count() > 0 &&
         step_count() % options.peer_copies_every == 0 && core_->checkpoints().may_copy();
}
void Engine::copy_to_peers(const std::string& directory, const SaveOptions& options) {
  if (config().zero_core.peer_copies == 0)
    throw UsageError(
        "Engine::copy_to_peers() was called without zero_core.peer_copies in the config");
  refuse_empty(directory, "copy_to_peers");
  core_->begin_call(Call::copy_to_peers);
  if (!core_->checkpoints().copies_behind_steps({.asynchronous = true})) core_->finish_work();
  core_->train().require_values(" to copy");
  const std::int64_t begin = detail::steady_nanoseconds();
  core_->checkpoints().copy_to_peers(directory, options);
  core_->note_save(begin);
}
double Engine::predicted_save_seconds() const {
  return core_->checkpoints().predicted_seconds();
}
std::optional<Resumed> Engine::resume(const std::string& directory, Resume mode,
                                      const std::string& tag) {
  refuse_empty(directory, "resume");
  core_->begin_call(Call::resume);
  try {
    std::optional<Resumed> resumed = core_->checkpoints().resume(directory, mode, tag);
    if (resumed && core_->train().scaler.dynamic()) core_->stepper().note_restored_scaler();
    return resumed;
  } catch (const Error& error) {
    if (core_->checkpoints().spoiled()) core_->guard().poison(error.what());
    throw;
  }
}

EngineReport Engine::report() {
  return core_->report();
}
RankReport Engine::rank_report() {
  return core_->rank_report();
}
std::string Engine::write_trace(const std::string& file) {
  return core_->write_trace(file);
}
const Config& Engine::config() const {
  return core_->train().config;
}
Batch Engine::batch() const {
  return core_->train().plan.batch;
}
std::vector<std::int64_t> Engine::micro_batches(std::int64_t step) const {
  return core_->recomputation().micro_batches(step);
}
std::int64_t Engine::step_count() const {
  return core_->train().step;
}
std::int64_t Engine::applied_steps() {
  core_->stepper().settle();
  return core_->train().applied_steps;
}
DType Engine::compute_dtype() const {
  return core_->train().policy().precision.compute;
}
bool Engine::reduces_each_micro_step() const {
  return core_->train().plan.completes_each();
}
bool Engine::failed() const {
  return core_->guard().failed();
}
std::string Engine::memory_table() const {
  return core_->train().runtime.ledger().table();
}

}  // namespace zero
